"""Which partition a record goes to when nobody says so.

Records with a key: murmur2 of the key over all partitions, as every Kafka client, so that a key stays where it is.
Records without: all to one partition until its batch is full or sent, then to another that has a leader (KIP-480,
KIP-794): few large batches instead of many small ones, evenly spread over time. Both are `accumulator.TopicQueues`.
"""

from __future__ import annotations

from collections.abc import Callable

# topic, key, value, number of partitions -> partition
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
