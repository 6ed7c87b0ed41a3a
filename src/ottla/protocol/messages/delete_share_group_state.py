"""DeleteShareGroupState (86) deletes the stored state of share partitions. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    """The partitions."""

    group_id: str = ""
    topics: list[DeleteStateData] = []


class DeleteStateData(Struct):
    """An element of `DeleteShareGroupStateRequest.topics`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = []


class PartitionData(Struct):
    """An element of `DeleteStateData.partitions`."""

    partition: Int32 = 0


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    """The outcome per partition."""

    results: list[DeleteStateResult] = []


class DeleteStateResult(Struct):
    """An element of `DeleteShareGroupStateResponse.results`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = []


class PartitionResult(Struct):
    """An element of `DeleteStateResult.partitions`."""

    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
