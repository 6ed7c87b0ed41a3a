"""DescribeGroups (15) shows state and members of classic groups. KIP-430, KIP-345, KIP-1043."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct, since


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    """Asks about groups by id."""

    groups: list[str] = []
    include_authorized_operations: bool = since(3)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    """The groups' state and members."""

    throttle_time_ms: Int32 = since(1)
    groups: list[DescribedGroup] = []


class DescribedGroup(Struct):
    """An element of `DescribeGroupsResponse.groups`."""

    error_code: Int16 = 0
    error_message: str | None = since(6, default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Int32 = since(3, default=-(2**31))


class DescribedGroupMember(Struct):
    """An element of `DescribedGroup.members`."""

    member_id: str = ""
    group_instance_id: str | None = since(4, default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""
