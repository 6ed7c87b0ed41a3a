"""ReadShareGroupStateSummary (87) reads where share partitions start. KIP-932, KIP-1226."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid, since


class ReadShareGroupStateSummaryRequest(Message, key=87, versions="0-1", flexible="0+"):
    """The partitions."""

    group_id: str = ""
    topics: list[ReadStateSummaryData] = []


class ReadStateSummaryData(Struct):
    """An element of `ReadShareGroupStateSummaryRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `ReadStateSummaryData.partitions`."""

    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadShareGroupStateSummaryResponse(Message, key=87, versions="0-1", flexible="0+"):
    """Epochs and start offsets."""

    results: list[ReadStateSummaryResult] = []


class ReadStateSummaryResult(Struct):
    """An element of `ReadShareGroupStateSummaryResponse.results`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `ReadStateSummaryResult.partitions`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)
