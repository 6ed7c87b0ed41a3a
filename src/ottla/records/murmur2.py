"""Where a keyed record goes: Kafka's murmur2 partitioner, so that every client agrees on a key's partition. KIP-480."""

from ottla.records.batch import Buffer
from ottla.records.kernels import murmur2

__all__ = ["murmur2", "partition_for_key"]


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """The partition of `key` among `partition_count` > 0."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count
