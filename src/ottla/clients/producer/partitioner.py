"""Which partition a record goes to when nobody says so.

Records with a key: murmur2 of the key over all partitions, as every Kafka client, so that a key stays where it is.
Records without: all to one partition until its batch is full or sent, then to another that has a leader (KIP-480,
KIP-794): few large batches instead of many small ones, evenly spread over time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.clients.producer.partition import PartitionQueue

# topic, key, value, number of partitions -> partition
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]


class TopicQueues:
    """The partitions of one topic, and the one that takes records without a key now."""

    __slots__ = ("available", "queues", "random", "sticky")

    def __init__(self, random: Random) -> None:
        self.random = random
        self.queues: list[PartitionQueue] = []
        self.available: list[PartitionQueue] = []
        self.sticky: PartitionQueue  # once there are queues

    def next_sticky(self) -> PartitionQueue:
        """Another partition for records without a key: any that has a leader, or any at all."""
        choice = self.available or self.queues
        before = getattr(self, "sticky", None)
        while True:
            chosen = choice[int(self.random.random() * len(choice))]
            if chosen is not before or len(choice) == 1:
                self.sticky = chosen
                return chosen

    def leave(self, queue: PartitionQueue) -> None:
        """A batch of `queue` was sent: records without a key go on elsewhere, also where keyed ones keep it busy."""
        if self.sticky is queue:
            self.next_sticky()
