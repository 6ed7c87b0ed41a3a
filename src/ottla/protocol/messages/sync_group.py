"""SyncGroup (14) hands out the assignment that the leader of a classic group has made. KIP-345, KIP-559."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, Struct, since


class SyncGroupRequest(Message, Request["SyncGroupResponse"], key=14, versions="0-5", flexible="4+"):
    """Asks for the member's assignment; the leader sends the assignments of all members."""

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = since(3, default=None)
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupRequestAssignment(Struct):
    """An element of `SyncGroupRequest.assignments`."""

    member_id: str = ""
    assignment: bytes = b""


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    """The member's assignment."""

    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignment: bytes = b""
