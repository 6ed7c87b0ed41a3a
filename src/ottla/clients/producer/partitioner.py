"""Chooses the partition of a record if the caller names none: the partitioners of librdkafka by name, or a callable.

`murmur2_random` is the default, and the default of Kafka's Java clients, kafka-python and aiokafka. The default of
librdkafka, and so of confluent-kafka, is `consistent_random`, which assigns most keys to other partitions. A program
that migrates from confluent-kafka keeps the partitions of its keys if it sets `partitioner` to that name.

| name | a record with a key | a record without |
|---|---|---|
| `murmur2_random` | murmur2 | sticky |
| `murmur2` | murmur2 | as the empty key |
| `consistent_random` | CRC-32; an empty key counts as none | sticky |
| `consistent` | CRC-32 | as the empty key |
| `fnv1a_random` | FNV-1a, as Sarama | sticky |
| `fnv1a` | FNV-1a | as the empty key |
| `random` | sticky | sticky |

Sticky: records go to one partition until its batch is full or sent, then to another partition with a leader (KIP-480,
KIP-794). This makes few large batches instead of many small ones, evenly distributed over time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from zlib import crc32

from ottla.clients.errors import ConfigurationError
from ottla.records.murmur2 import partition_for_key

# topic, key, value, number of partitions -> partition
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]
# key, number of partitions -> partition, or -1 for sticky
Choice = Callable[[bytes | None, int], int]

STICKY = -1
DEFAULT = "murmur2_random"


def fnv1a(key: bytes) -> int:
    """The 32-bit FNV-1a hash of `key`, without its sign, as Sarama's hash partitioner and librdkafka compute it."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed if hashed < 0x80000000 else 0x100000000 - hashed


def _murmur2(key: bytes | None, count: int) -> int:
    return partition_for_key(key or b"", count)


def _consistent(key: bytes | None, count: int) -> int:
    return crc32(key or b"") % count


def _consistent_random(key: bytes | None, count: int) -> int:
    return crc32(key) % count if key else STICKY


def _fnv1a(key: bytes | None, count: int) -> int:
    return fnv1a(key or b"") % count


def _fnv1a_random(key: bytes | None, count: int) -> int:
    return STICKY if key is None else fnv1a(key) % count


def _random(key: bytes | None, count: int) -> int:  # noqa: ARG001 - the signature of Choice
    return STICKY


CHOICES: dict[str, Choice | None] = {
    DEFAULT: None,  # compiled, in `_encoder.Partitions.queue_for`
    "murmur2": _murmur2,
    "consistent_random": _consistent_random,
    "consistent": _consistent,
    "fnv1a_random": _fnv1a_random,
    "fnv1a": _fnv1a,
    "random": _random,
}


def read_partitioner(given: object) -> tuple[Choice | None, Partitioner | None]:
    """The named partitioner, or the caller's function; both None for the default. Raises ConfigurationError."""
    if given is None or isinstance(given, str):
        name = DEFAULT if given is None else given
        if name in CHOICES:
            return CHOICES[name], None
        raise ConfigurationError(f"partitioner is {name!r}; it must be one of {', '.join(CHOICES)}, or a callable")
    if callable(given):
        return None, given
    raise ConfigurationError(
        f"partitioner is {given!r}; it must be one of {', '.join(CHOICES)}, or a callable of topic, key, value and "
        "partition count"
    )


def checked_partition(partition: Any, topic: str, count: int) -> int:
    """Check that the result of the caller's partitioner is a partition of the topic. Raises ValueError, TypeError."""
    try:
        index = operator.index(partition)
    except TypeError:
        raise TypeError(f"The partitioner returned {partition!r} for {topic}; it must return a whole number") from None
    if not 0 <= index < count:
        raise ValueError(f"The partitioner returned {index} for {topic}, which has partitions 0 to {count - 1}")
    return index
