"""Which brokers the clients of a listener can reach, and how they see the partitions (Kafka's KRaftMetadataCache)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage

LISTENER_ERROR_SINCE_VERSION = 6


class Leadership(NamedTuple):
    """The error of a partition, and its leader as clients see it."""

    error_code: ErrorCode
    leader_id: int


def leadership(
    image: MetadataImage, partition: PartitionImage, available: Collection[int], *, names_listener: bool = True
) -> Leadership:
    """The leader, if it is one of the `available` brokers. Otherwise LEADER_NOT_AVAILABLE.

    With `names_listener` the error is LISTENER_NOT_FOUND if the broker is registered without the client's listener.
    """
    if partition.leader in available:
        return Leadership(ErrorCode.NONE, partition.leader)
    is_registered = partition.leader in image.brokers
    code = ErrorCode.LISTENER_NOT_FOUND if is_registered and names_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return Leadership(code, NO_LEADER)
