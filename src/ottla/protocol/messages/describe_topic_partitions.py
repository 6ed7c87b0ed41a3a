"""DescribeTopicPartitions (75) describes topics page by page, with eligible leaders. KIP-966."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    """Asks for partitions from a cursor on."""

    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: RequestCursor | None = None


class TopicRequest(Struct):
    """An element of `DescribeTopicPartitionsRequest.topics`."""

    name: str = ""


class RequestCursor(Struct):
    """The value of `DescribeTopicPartitionsRequest.cursor`."""

    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    """A page, and where the next begins."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: ResponseCursor | None = None


class DescribeTopicPartitionsResponseTopic(Struct):
    """An element of `DescribeTopicPartitionsResponse.topics`."""

    error_code: Int16 = 0
    name: str | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -(2**31)


class DescribeTopicPartitionsResponsePartition(Struct):
    """An element of `DescribeTopicPartitionsResponseTopic.partitions`."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class ResponseCursor(Struct):
    """The value of `DescribeTopicPartitionsResponse.next_cursor`."""

    topic_name: str = ""
    partition_index: Int32 = 0
