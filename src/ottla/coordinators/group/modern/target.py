"""The target assignment of a group: what each member shall have, computed for one group epoch."""

from __future__ import annotations

from typing import NamedTuple

from ottla.coordinators.group.assignors import Assignor, GroupSpec, Partitions, TargetPartitions

NO_PARTITIONS: Partitions = {}


class TargetUpdate(NamedTuple):
    """A new target assignment, and the members whose part differs from the previous one."""

    partitions: TargetPartitions
    changed: dict[str, Partitions]

    def of(self, member_id: str) -> Partitions:
        """The member's part; empty if it has none."""
        return self.partitions.get(member_id, NO_PARTITIONS)


class TargetAssignment:
    """The stored target assignment. Only replay changes it."""

    __slots__ = ("by_member", "epoch", "timestamp_ms")

    def __init__(self) -> None:
        self.epoch = 0
        self.timestamp_ms = 0
        """When it was computed, by the wall clock; 0 if unknown."""
        self.by_member: dict[str, Partitions] = {}

    def of(self, member_id: str) -> Partitions:
        """The member's part; empty if it has none."""
        return self.by_member.get(member_id, NO_PARTITIONS)

    def compute(self, assignor: Assignor, spec: GroupSpec) -> TargetUpdate:
        """Compute the next target assignment, without changing this one."""
        partitions = assignor(spec)
        changed = {
            member_id: part
            for member_id in spec.members
            if (part := partitions.get(member_id, NO_PARTITIONS)) != self.by_member.get(member_id)
        }
        return TargetUpdate(partitions, changed)


def may_assign_again(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether `interval_ms` passed since the last assignment, so that the changes of many members are batched.

    A timestamp in the future counts as elapsed: the wall clock was set back.
    """
    return timestamp_ms == 0 or interval_ms == 0 or now_ms >= timestamp_ms + interval_ms or now_ms < timestamp_ms
