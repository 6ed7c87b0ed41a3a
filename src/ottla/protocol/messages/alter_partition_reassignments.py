"""AlterPartitionReassignments (45) starts or cancels moves of partitions between brokers. KIP-455."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct, since


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    """The replicas that partitions shall have; null cancels."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: bool = since(1, default=True)
    topics: list[ReassignableTopic] = []


class ReassignableTopic(Struct):
    """An element of `AlterPartitionReassignmentsRequest.topics`."""

    name: str = ""
    partitions: list[ReassignablePartition] = []


class ReassignablePartition(Struct):
    """An element of `ReassignableTopic.partitions`."""

    partition_index: Int32 = 0
    replicas: list[Int32] | None = None


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    """The outcome per partition."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: bool = since(1, default=True)
    error_code: Int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ReassignableTopicResponse(Struct):
    """An element of `AlterPartitionReassignmentsResponse.responses`."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = []


class ReassignablePartitionResponse(Struct):
    """An element of `ReassignableTopicResponse.partitions`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
