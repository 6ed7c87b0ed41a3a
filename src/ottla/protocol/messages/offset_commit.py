"""OffsetCommit (8) stores a group's offsets. KIP-320, KIP-345, KIP-848."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid, field, since


class OffsetCommitRequest(Message, Request["OffsetCommitResponse"], key=8, versions="2-10", flexible="8+"):
    """Commits offsets on behalf of a member."""

    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = since(7, default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitRequestTopic(Struct):
    """An element of `OffsetCommitRequest.topics`."""

    name: str = field("0-9")
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequestPartition(Struct):
    """An element of `OffsetCommitRequestTopic.partitions`."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: str | None = ""


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetCommitResponseTopic] = []


class OffsetCommitResponseTopic(Struct):
    """An element of `OffsetCommitResponse.topics`."""

    name: str = field("0-9")
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponsePartition(Struct):
    """An element of `OffsetCommitResponseTopic.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
