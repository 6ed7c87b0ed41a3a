"""ReadShareGroupState (84) reads the stored state of share partitions. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, Uuid


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    """The partitions."""

    group_id: str = ""
    topics: list[ReadStateData] = []


class ReadStateData(Struct):
    """An element of `ReadShareGroupStateRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `ReadStateData.partitions`."""

    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    """Their state, by ranges of offsets."""

    results: list[ReadStateResult] = []


class ReadStateResult(Struct):
    """An element of `ReadShareGroupStateResponse.results`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `ReadStateResult.partitions`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    """An element of `PartitionResult.state_batches`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
