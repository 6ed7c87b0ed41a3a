"""JoinGroup (11) makes a member part of a classic group and of its next generation.

KIP-62, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814.
"""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct, field, since


class JoinGroupRequest(Message, Request["JoinGroupResponse"], key=11, versions="0-9", flexible="6+"):
    """Joins, offering the protocols that the member supports."""

    group_id: str = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: str = ""
    group_instance_id: str | None = since(5, default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = since(8, default=None)


class JoinGroupRequestProtocol(Struct):
    """An element of `JoinGroupRequest.protocols`."""

    name: str = ""
    metadata: bytes = b""


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    """The new generation; its leader also gets all members."""

    throttle_time_ms: Int32 = since(2)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: str | None = since(7, default=None)
    protocol_name: str | None = field(nullable="7+")
    leader: str = ""
    skip_assignment: bool = since(9)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class JoinGroupResponseMember(Struct):
    """An element of `JoinGroupResponse.members`."""

    member_id: str = ""
    group_instance_id: str | None = since(5, default=None)
    metadata: bytes = b""
