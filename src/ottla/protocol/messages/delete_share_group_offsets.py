"""DeleteShareGroupOffsets (92) forgets topics of a share group. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    """The topics."""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """An element of `DeleteShareGroupOffsetsRequest.topics`."""

    topic_name: str = ""


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    """The outcome per topic."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """An element of `DeleteShareGroupOffsetsResponse.responses`."""

    topic_name: str = ""
    topic_id: Uuid = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = None
