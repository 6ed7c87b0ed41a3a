"""Heartbeat (12) keeps a member in its classic group. KIP-62, KIP-345."""

from __future__ import annotations

from ottla.common.request import Request
from ottla.protocol.message import Int16, Int32, Message, since


class HeartbeatRequest(Message, Request["HeartbeatResponse"], key=12, versions="0-4", flexible="4+"):
    """Says that the member is alive."""

    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: str | None = since(3, default=None)


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    """Says whether the member has to rejoin."""

    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
