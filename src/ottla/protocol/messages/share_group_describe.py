"""ShareGroupDescribe (77) shows share groups. KIP-932."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID
from ottla.protocol.message import Int16, Int32, Message, Struct, Uuid, field


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="0+"):
    """Asks about groups by id."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="0+"):
    """State, members and assignments."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    """An element of `ShareGroupDescribeResponse.groups`."""

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
    rack_id: str | None = None
    member_epoch: Int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    assignment: Assignment = field()


class Assignment(Struct):
    """The value of `Member.assignment`."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Struct):
    """An element of `Assignment.topic_partitions`."""

    topic_id: Uuid = ZERO_UUID
    topic_name: str = ""
    partitions: list[Int32] = []
