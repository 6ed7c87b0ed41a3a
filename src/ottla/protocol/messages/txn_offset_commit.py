"""TxnOffsetCommit (28) stores a group's offsets as part of a transaction. KIP-98, KIP-447, KIP-890."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class TxnOffsetCommitRequest(Message, Request["TxnOffsetCommitResponse"], key=28, versions="0-5", flexible="3+"):
    """Commits offsets that become visible with the transaction."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = since(3, default=-1)
    member_id: str = since(3)
    group_instance_id: str | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitRequestTopic(Struct):
    """An element of `TxnOffsetCommitRequest.topics`."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequestPartition(Struct):
    """An element of `TxnOffsetCommitRequestTopic.partitions`."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: str | None = ""


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class TxnOffsetCommitResponseTopic(Struct):
    """An element of `TxnOffsetCommitResponse.topics`."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponsePartition(Struct):
    """An element of `TxnOffsetCommitResponseTopic.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
