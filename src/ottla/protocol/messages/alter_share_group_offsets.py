"""AlterShareGroupOffsets (91) moves where a share group starts. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Int64, Message, Struct, Uuid


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    """The new start offsets."""

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsRequestTopic(Struct):
    """An element of `AlterShareGroupOffsetsRequest.topics`."""

    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


class AlterShareGroupOffsetsRequestPartition(Struct):
    """An element of `AlterShareGroupOffsetsRequestTopic.partitions`."""

    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class AlterShareGroupOffsetsResponseTopic(Struct):
    """An element of `AlterShareGroupOffsetsResponse.responses`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


class AlterShareGroupOffsetsResponsePartition(Struct):
    """An element of `AlterShareGroupOffsetsResponseTopic.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
