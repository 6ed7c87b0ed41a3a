"""Common parts of the heartbeats and administrators' requests of all modern types of groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply
from ottla.coordinators.group import offsets
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.modern.epochs import JOIN_EPOCH
from ottla.coordinators.group.modern.settings import group_setting
from ottla.coordinators.group.modern.state import ModernGroup
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages.delete_groups import DeletableGroupResult

M = TypeVar("M")
G = TypeVar("G", bound=ModernGroup[Any])


class Heartbeat(Protocol):
    """The fields that the heartbeats of all types have."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None


class Described(Protocol):
    """The fields of a member that all types have."""

    @property
    def epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...


def problem_of_ids(request: Heartbeat, *, needs_member_id: bool = True) -> str | None:
    """Return what is wrong with the ids of a heartbeat, in Kafka's words; None if they are valid."""
    if needs_member_id and not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    return "RackId can't be empty." if request.rack_id is not None and not request.rack_id.strip() else None


class GroupType(NamedTuple):
    """One type of group: its name in Kafka's messages, and the names of its settings."""

    name: str
    heartbeat_interval: str
    session_timeout: str

    def existing(self, core: Core, groups: Mapping[str, G], group_id: str, noun: str | None = None) -> G:
        """Return the group; raises GROUP_ID_NOT_FOUND. `noun` begins Kafka's message, which differs by request."""
        group = groups.get(group_id)
        if group is None:
            noun = f"{self.name.capitalize()} group" if noun is None else noun
            is_other = core.has_group(group_id)
            message = f"Group {group_id} is not a {self.name} group." if is_other else f"{noun} {group_id} not found."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        return group

    def check_room(self, group: ModernGroup[Any], member_id: str, most: int) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if a member must not join any more."""
        if len(group.members) >= most and member_id not in group.members:
            message = f"The {self.name} group has reached its maximum capacity of {most} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, message)

    def check_epoch(self, member: Described, received: int, *, is_consistent: bool) -> None:
        """Raise FENCED_MEMBER_EPOCH if the epoch of a heartbeat is not valid.

        A member may (re)join at any time, with epoch 0. A member that sends its previous epoch did not receive the last
        response: it is valid if `is_consistent`, i.e. if the member does not use more than it was assigned.
        """
        current, previous = member.epoch, member.previous_epoch
        if received in (JOIN_EPOCH, current) or (received == previous and received < current and is_consistent):
            return
        size = "greater" if received > current else "smaller"
        message = (
            f"The {self.name} group member has a {size} member epoch ({received}) than the one known by the group"
            f" coordinator ({current}). The member must abandon all its partitions and rejoin."
        )
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)

    def heartbeat_interval_ms(self, core: Core, group_id: str, default_ms: int) -> int:
        """The group's own heartbeat interval, otherwise the broker's."""
        return group_setting(core.overrides(group_id), self.heartbeat_interval, default_ms)

    def expect_heartbeat(self, core: Core, group_id: str, member_id: str, default_ms: int, now: Moment) -> None:
        """Remove the member unless a heartbeat arrives within its session timeout."""
        timeout_ms = group_setting(core.overrides(group_id), self.session_timeout, default_ms)
        core.timers.set((Kind.SESSION, group_id, member_id), now.monotonic_ms + timeout_ms)


def known_member(group: ModernGroup[M], member_id: str) -> M:
    """Return the member; raises UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def delete_group(
    core: Core, call: Call[DeleteGroup], group: ModernGroup[Any], tombstones: list[RecordBytes]
) -> Effects:
    """Delete a group that has no members, with its offsets; `tombstones` delete the group."""
    if not group.is_empty:
        return [Reply(call, DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NON_EMPTY_GROUP))]
    return offsets.delete_group(core, call, tombstones)
