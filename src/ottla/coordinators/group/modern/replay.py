"""Applies the records that groups of all modern types have, and creates and deletes groups.

A group that is created replaces the simple group that its committed offsets created; a group that is deleted leaves one
if it has committed offsets. A record that names an unknown group or member is not an error: compaction may have removed
its predecessors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from ottla.coordinators.group.core import Core
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.modern.epochs import LEAVE_EPOCH
from ottla.coordinators.group.modern.state import ModernGroup
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.message import Message

G = TypeVar("G", bound=ModernGroup[Any])


class _TargetEpoch(Protocol):
    assignment_epoch: int
    assignment_timestamp: int


def group_of_record(
    core: Core, groups: dict[str, G], create: Callable[[str], G], key: Message, value: Message | None
) -> G | None:
    """Return the group of a record, which may be new. None for a tombstone of an unknown group."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = groups.get(group_id)
    if group is None and value is not None:
        group = groups[group_id] = create(group_id)
        core.groups.pop(group_id, None)
        core.unserved.pop(group_id, None)
    return group


def replay_target_epoch(group: ModernGroup[Any], value: _TargetEpoch | None) -> None:
    """Apply the record of the target assignment's epoch."""
    if value is None:
        group.target.epoch = LEAVE_EPOCH
    else:
        group.target.epoch, group.target.timestamp_ms = value.assignment_epoch, value.assignment_timestamp


def delete_group(core: Core, groups: dict[str, G], group: G, timers: Iterable[Kind]) -> None:
    """Delete a group, with these timers of its members."""
    group_id = group.group_id
    for member_id in group.members:
        _cancel_timers(core, group_id, member_id, timers)
    del groups[group_id]
    if core.offsets.of_group(group_id) or core.offsets.pending_of(group_id):
        core.groups.setdefault(group_id, Group(group_id, None))


def remove_member(core: Core, group: ModernGroup[Any], member_id: str, timers: Iterable[Kind]) -> None:
    """Remove a member from its group, with these timers."""
    group.remove(member_id)
    _cancel_timers(core, group.group_id, member_id, timers)


def _cancel_timers(core: Core, group_id: str, member_id: str, timers: Iterable[Kind]) -> None:
    """Cancel these timers of a member."""
    for kind in timers:
        core.timers.cancel((kind, group_id, member_id))
