"""DeleteGroups (42) deletes empty groups. KIP-229."""

from __future__ import annotations

from ottla.protocol.message import Int16, Int32, Message, Struct


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    """The groups to delete."""

    groups_names: list[str] = []


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    """The outcome per group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []


class DeletableGroupResult(Struct):
    """An element of `DeleteGroupsResponse.results`."""

    group_id: str = ""
    error_code: Int16 = 0
