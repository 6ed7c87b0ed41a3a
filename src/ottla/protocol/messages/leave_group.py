"""LeaveGroup (13) removes members from a classic group. Version 3 takes several (KIP-345), 5 a reason (KIP-800)."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct, field, since


class LeaveGroupRequest(Message, Request["LeaveGroupResponse"], key=13, versions="0-5", flexible="4+"):
    """Removes members."""

    group_id: str = ""
    member_id: str = field("0-2")
    members: list[MemberIdentity] = since(3)


class MemberIdentity(Struct):
    """An element of `LeaveGroupRequest.members`."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = since(5, default=None)


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    """The outcome per member."""

    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3)


class MemberResponse(Struct):
    """An element of `LeaveGroupResponse.members`."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: Int16 = 0
