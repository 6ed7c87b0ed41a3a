"""DeleteTopics (20) deletes topics, by name or (version 6, KIP-516) by id."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid, field, since


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    """Deletes topics."""

    topics: list[DeleteTopicState] = since(6)
    topic_names: list[str] = field("0-5")
    timeout_ms: Int32 = 0


class DeleteTopicState(Struct):
    """An element of `DeleteTopicsRequest.topics`."""

    name: str | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    """The outcome per topic."""

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


class DeletableTopicResult(Struct):
    """An element of `DeleteTopicsResponse.responses`."""

    name: str | None = field(nullable="6+")
    topic_id: Uuid = since(6)
    error_code: Int16 = 0
    error_message: str | None = since(5, default=None)
