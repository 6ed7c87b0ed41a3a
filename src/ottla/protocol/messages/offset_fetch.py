"""OffsetFetch (9) reads a group's committed offsets.

Version 8 asks about several groups (KIP-709), 9 serves KIP-848, 10 uses topic ids.
"""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid, field, since


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    """Asks for committed offsets; null topics means all."""

    group_id: str = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2+")
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: bool = since(7)


class OffsetFetchRequestTopic(Struct):
    """An element of `OffsetFetchRequest.topics`."""

    name: str = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


class OffsetFetchRequestGroup(Struct):
    """An element of `OffsetFetchRequest.groups`."""

    group_id: str = ""
    member_id: str | None = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequestTopics(Struct):
    """An element of `OffsetFetchRequestGroup.topics`."""

    name: str = field("8-9")
    topic_id: Uuid = since(10)
    partition_indexes: list[Int32] = []


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    """The committed offsets; -1 if there is none."""

    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = since(8)


class OffsetFetchResponseTopic(Struct):
    """An element of `OffsetFetchResponse.topics`."""

    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


class OffsetFetchResponsePartition(Struct):
    """An element of `OffsetFetchResponseTopic.partitions`."""

    partition_index: Int32 = field("0-7")
    committed_offset: Int64 = field("0-7")
    committed_leader_epoch: Int32 = field("5-7", default=-1)
    metadata: str | None = field("0-7")
    error_code: Int16 = field("0-7")


class OffsetFetchResponseGroup(Struct):
    """An element of `OffsetFetchResponse.groups`."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    """An element of `OffsetFetchResponseGroup.topics`."""

    name: str = field("8-9")
    topic_id: Uuid = since(10)
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponsePartitions(Struct):
    """An element of `OffsetFetchResponseTopics.partitions`."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0
