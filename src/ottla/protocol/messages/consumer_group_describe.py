"""ConsumerGroupDescribe (69) shows KIP-848 groups."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, Uuid, field, since


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    """Asks about groups by id."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    """State, members and assignments."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    """An element of `ConsumerGroupDescribeResponse.groups`."""

    error_code: Int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: str = ""
    members: list[Member] = []
    authorized_operations: Int32 = -(2**31)


class Member(Struct):
    """An element of `DescribedGroup.members`."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: Int8 = since(1, default=-1)


class Assignment(Struct):
    """The value of `Member.assignment` and `Member.target_assignment`."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    """An element of `Assignment.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []
