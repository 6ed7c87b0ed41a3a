"""WriteShareGroupState (85) stores the state of share partitions. KIP-932, KIP-1226."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Int64, Message, Struct, Uuid, since


class WriteShareGroupStateRequest(Message, key=85, versions="0-1", flexible="0+"):
    """The state, by ranges of offsets."""

    group_id: str = ""
    topics: list[WriteStateData] = []


class WriteStateData(Struct):
    """An element of `WriteShareGroupStateRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `WriteStateData.partitions`."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)
    state_batches: list[StateBatch] = []


class StateBatch(Struct):
    """An element of `PartitionData.state_batches`."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class WriteShareGroupStateResponse(Message, key=85, versions="0-1", flexible="0+"):
    """The outcome per partition."""

    results: list[WriteStateResult] = []


class WriteStateResult(Struct):
    """An element of `WriteShareGroupStateResponse.results`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `WriteStateResult.partitions`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
