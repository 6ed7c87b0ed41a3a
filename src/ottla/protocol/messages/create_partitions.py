"""CreatePartitions (37) adds partitions to topics. KIP-195, KIP-599."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    """The new number of partitions per topic."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopic(Struct):
    """An element of `CreatePartitionsRequest.topics`."""

    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsAssignment(Struct):
    """An element of `CreatePartitionsTopic.assignments`."""

    broker_ids: list[Int32] = []


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    """The outcome per topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class CreatePartitionsTopicResult(Struct):
    """An element of `CreatePartitionsResponse.results`."""

    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
