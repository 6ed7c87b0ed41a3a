"""FindCoordinator (10) names the broker that coordinates a group, transaction or share partition.

Version 4 asks for several (KIP-699).
"""

from __future__ import annotations

from ottla.protocol.message import Int8, Int16, Int32, Message, Struct, field, since


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    """Asks for the coordinator of `key`, or of each of `coordinator_keys`."""

    key: str = field("0-3")
    key_type: Int8 = since(1)
    coordinator_keys: list[str] = since(4)


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    """Where the coordinators are."""

    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = field("0-3")
    error_message: str | None = field("1-3")
    node_id: Int32 = field("0-3")
    host: str = field("0-3")
    port: Int32 = field("0-3")
    coordinators: list[Coordinator] = since(4)


class Coordinator(Struct):
    """An element of `FindCoordinatorResponse.coordinators`."""

    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
