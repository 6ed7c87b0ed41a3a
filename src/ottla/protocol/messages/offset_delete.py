"""OffsetDelete (47) deletes committed offsets of a group. KIP-496."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct


class OffsetDeleteRequest(Message, Request["OffsetDeleteResponse"], key=47, versions="0"):
    """The partitions to forget."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteRequestTopic(Struct):
    """An element of `OffsetDeleteRequest.topics`."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequestPartition(Struct):
    """An element of `OffsetDeleteRequestTopic.partitions`."""

    partition_index: Int32 = 0


class OffsetDeleteResponse(Message, key=47, versions="0"):
    """The outcome per partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


class OffsetDeleteResponseTopic(Struct):
    """An element of `OffsetDeleteResponse.topics`."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponsePartition(Struct):
    """An element of `OffsetDeleteResponseTopic.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
