"""ListPartitionReassignments (46) lists the moves that are under way. KIP-455."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    """Asks about partitions; null means all."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsTopics(Struct):
    """An element of `ListPartitionReassignmentsRequest.topics`."""

    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    """The moves."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


class OngoingTopicReassignment(Struct):
    """An element of `ListPartitionReassignmentsResponse.topics`."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class OngoingPartitionReassignment(Struct):
    """An element of `OngoingTopicReassignment.partitions`."""

    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []
