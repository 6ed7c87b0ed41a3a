"""InitializeShareGroupState (83) starts the stored state of share partitions. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    """The partitions and their start offsets."""

    group_id: str = ""
    topics: list[InitializeStateData] = []


class InitializeStateData(Struct):
    """An element of `InitializeShareGroupStateRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `InitializeStateData.partitions`."""

    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    """The outcome per partition."""

    results: list[InitializeStateResult] = []


class InitializeStateResult(Struct):
    """An element of `InitializeShareGroupStateResponse.results`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `InitializeStateResult.partitions`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
