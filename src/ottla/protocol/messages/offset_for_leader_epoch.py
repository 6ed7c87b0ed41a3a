"""OffsetForLeaderEpoch (23) tells where an epoch ended, so that diverged logs can be cut. KIP-101, KIP-320."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, since


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    """Asks for the end offset of epochs."""

    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderTopic(Struct):
    """An element of `OffsetForLeaderEpochRequest.topics`."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderPartition(Struct):
    """An element of `OffsetForLeaderTopic.partitions`."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    """The largest epoch not above the one asked for, and its end."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


class OffsetForLeaderTopicResult(Struct):
    """An element of `OffsetForLeaderEpochResponse.topics`."""

    topic: str = ""
    partitions: list[EpochEndOffset] = []


class EpochEndOffset(Struct):
    """An element of `OffsetForLeaderTopicResult.partitions`."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1
