"""ListGroups (16) lists the groups that a broker coordinates, filtered by state (KIP-518) and type (KIP-848)."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct, since


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    """Asks for groups."""

    states_filter: list[str] = since(4)
    types_filter: list[str] = since(5)


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    """The groups known to this broker."""

    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    groups: list[ListedGroup] = []


class ListedGroup(Struct):
    """An element of `ListGroupsResponse.groups`."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = since(4)
    group_type: str = since(5)
