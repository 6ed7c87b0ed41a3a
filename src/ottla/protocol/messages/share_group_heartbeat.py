"""ShareGroupHeartbeat (76) is what a member of a share group says to its coordinator. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid


class ShareGroupHeartbeatRequest(Message, Request["ShareGroupHeartbeatResponse"], key=76, versions="1", flexible="0+"):
    """A member's state; null means "as before"."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: Int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    """The member's epoch and assignment."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Struct):
    """The value of `ShareGroupHeartbeatResponse.assignment`."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    """An element of `Assignment.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []
