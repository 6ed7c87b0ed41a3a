"""The way of a member to its target assignment, one heartbeat at a time.

A member first gives up the tasks that it shall not have: it stays behind until it no longer reports them. Then it
enters the epoch of the target assignment, and gets the tasks that are free. It gets the others as they become free. An
active task is free if no member owns it, and its process has no standby task of it: both would open the same state
directory. A standby task is free if its process does not have the task in any role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import MemberState, StreamsMember
from ottla.coordinators.group.streams.tasks import (
    NO_PARTITIONS,
    NOTHING_OWNED,
    OwnedTasks,
    TaskId,
    Tasks,
    TaskSets,
)


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member, and the tasks that it reports."""

    group: StreamsGroup
    epoch: int
    """The epoch of the target assignment."""
    target: Tasks
    reported: Tasks | None
    """The tasks that the member reports; None if it reports nothing new."""


def reconcile(member: StreamsMember, goal: Goal) -> StreamsMember:
    """Return the member's next state. Raises FENCED_MEMBER_EPOCH for a state of a later version of Kafka."""
    reported = goal.reported
    match member.state:
        case MemberState.STABLE:
            return member if member.epoch == goal.epoch else _next(member, goal, member.epoch)
        case MemberState.UNREVOKED_TASKS:
            if reported is None or member.revoking.overlaps(reported):
                return member
            return _next(member, goal, member.epoch + 1)
        case MemberState.UNRELEASED_TASKS:
            return _next(member, goal, member.epoch)
        case _ if reported is not None and reported.is_empty:
            return _next(member, goal, goal.epoch)
    message = "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
    raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _next(member: StreamsMember, goal: Goal, epoch: int) -> StreamsMember:
    """Compute what the member keeps, gives up, gets and waits for."""
    group, target = goal.group, goal.target

    def is_taken(task: TaskId) -> bool:
        return group.active_owners.get(task) is not None or group.has_replica(task, member.process_id)

    def is_at_process(task: TaskId) -> bool:
        return group.active_process(task) == member.process_id or group.has_replica(task, member.process_id)

    active = _difference(member.owned.tasks.active, target.active, is_taken)
    standby = _difference(member.owned.standby, target.standby, is_at_process)
    warmup = _difference(member.owned.warmup, target.warmup, is_at_process)
    epochs = member.owned.active
    kept = OwnedTasks(
        {name: {p: epochs[name][p] for p in parts} for name, parts in active.kept.items()}, standby.kept, warmup.kept
    )
    lost = OwnedTasks(
        {name: {p: epochs[name][p] for p in parts} for name, parts in active.lost.items()}, standby.lost, warmup.lost
    )
    if not lost.is_empty and (goal.reported is None or lost.overlaps(goal.reported)):
        state = MemberState.UNREVOKED_TASKS
        return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, owned=kept, revoking=lost)
    is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
    gained = {name: dict.fromkeys(parts, goal.epoch) for name, parts in active.gained.items()}
    owned = OwnedTasks(
        {name: {**kept.active.get(name, {}), **gained.get(name, {})} for name in kept.active.keys() | gained.keys()},
        _union(standby.kept, standby.gained),
        _union(warmup.kept, warmup.gained),
    )
    state = MemberState.UNRELEASED_TASKS if is_waiting else MemberState.STABLE
    return replace(
        member, state=state, epoch=goal.epoch, previous_epoch=member.epoch, owned=owned, revoking=NOTHING_OWNED
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    kept: TaskSets
    lost: TaskSets
    gained: TaskSets
    is_waiting: bool


def _difference(current: TaskSets, target: TaskSets, is_taken: Callable[[TaskId], bool]) -> _Difference:
    """Compare the tasks of one role with their target."""
    kept: dict[str, frozenset[int]] = {}
    lost: dict[str, frozenset[int]] = {}
    gained: dict[str, frozenset[int]] = {}
    is_waiting = False
    for name in current.keys() | target.keys():
        has, wants = current.get(name, NO_PARTITIONS), target.get(name, NO_PARTITIONS)
        free = frozenset(partition for partition in wants - has if not is_taken((name, partition)))
        is_waiting |= len(free) < len(wants - has)
        for found, partitions in ((kept, has & wants), (lost, has - wants), (gained, free)):
            if partitions:
                found[name] = partitions
    return _Difference(kept, lost, gained, is_waiting)


def _union(left: TaskSets, right: Mapping[str, frozenset[int]]) -> TaskSets:
    names = left.keys() | right.keys()
    return {name: left.get(name, NO_PARTITIONS) | right.get(name, NO_PARTITIONS) for name in names}
