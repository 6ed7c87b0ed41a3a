"""Kafka's murmur2 partitioner, with which every client selects the same partition for a key. KIP-480."""

from ottla.records.batch import Buffer
from ottla.records.kernels import murmur2

__all__ = ["murmur2", "partition_for_key"]


def partition_for_key(key: Buffer, partition_count: int) -> int:
    """Return the partition of `key`; `partition_count` must be positive."""
    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partition_count
