"""ConsumerGroupHeartbeat (68) is all that a member of a KIP-848 group says: join, stay, leave, acknowledge."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid, since


class ConsumerGroupHeartbeatRequest(
    Message, Request["ConsumerGroupHeartbeatResponse"], key=68, versions="0-1", flexible="0+"
):
    """A member's state; null and -1 mean "as before"."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = since(1, default=None)
    server_assignor: str | None = None
    topic_partitions: list[RequestTopicPartitions] | None = None


class RequestTopicPartitions(Struct):
    """An element of `ConsumerGroupHeartbeatRequest.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    """The member's epoch and assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Struct):
    """The value of `ConsumerGroupHeartbeatResponse.assignment`."""

    topic_partitions: list[ResponseTopicPartitions] = []


class ResponseTopicPartitions(Struct):
    """An element of `Assignment.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []
