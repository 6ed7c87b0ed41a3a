"""One member of a streams group. Members are values: a request computes the next one, which replay puts in place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from ottla.coordinators.group.streams.tasks import NOTHING_OWNED, OwnedTasks

Endpoint: TypeAlias = tuple[str, int]
"""Host and port."""


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. Values are as in Kafka's records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It must give up tasks."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that others have not given up yet."""
    UNKNOWN = 127
    """A state of a later version of Kafka."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        """The state of a record."""
        return cls(value) if value in cls._value2member_map_ else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member: one thread of the instance `process_id`. Times in milliseconds."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    """Where the instance answers interactive queries."""
    tags: tuple[tuple[str, str], ...] = ()
    owned: OwnedTasks = NOTHING_OWNED
    revoking: OwnedTasks = NOTHING_OWNED
    """Tasks that it must give up, and still owns."""

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether it has exactly its part of the target assignment of `target_epoch`."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, subtopology: str, partition: int) -> int | None:
        """The epoch at which it got an active task that it owns; None if it does not own it."""
        for tasks in (self.owned, self.revoking):
            epoch = tasks.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
