"""Sets of tasks: partitions by subtopology, for each of the three roles of a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

TaskId: TypeAlias = tuple[str, int]
"""Subtopology and partition."""
TaskSets: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology; no subtopology is empty."""
OwnedActive: TypeAlias = Mapping[str, Mapping[int, int]]
"""Active tasks by subtopology, each with the epoch at which the member got it."""

NO_TASKS: TaskSets = {}
NO_ACTIVE: OwnedActive = {}
NO_PARTITIONS: frozenset[int] = frozenset()


class Tasks(NamedTuple):
    """The tasks that a member shall have, or says that it has."""

    active: TaskSets = NO_TASKS
    standby: TaskSets = NO_TASKS
    warmup: TaskSets = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task."""
        return not (self.active or self.standby or self.warmup)


class OwnedTasks(NamedTuple):
    """The tasks that a member has, or must give up."""

    active: OwnedActive = NO_ACTIVE
    standby: TaskSets = NO_TASKS
    warmup: TaskSets = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task."""
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, tasks: Tasks | OwnedTasks) -> bool:
        """Whether a task is in both, in the same role."""
        return any(not theirs.isdisjoint(mine) for theirs, mine in self._pairs(tasks))

    def includes(self, tasks: Tasks) -> bool:
        """Whether it has all of `tasks`, in the same roles."""
        return all(theirs <= mine for theirs, mine in self._pairs(tasks))

    def _pairs(self, tasks: Tasks | OwnedTasks) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """The partitions of `tasks` and of this by role and subtopology."""
        roles = ((tasks.active, self.active), (tasks.standby, self.standby), (tasks.warmup, self.warmup))
        for theirs, mine in roles:
            yield from ((frozenset(parts), frozenset(mine.get(name, ()))) for name, parts in theirs.items())

    @property
    def tasks(self) -> Tasks:
        """The tasks without their epochs."""
        return Tasks({name: frozenset(parts) for name, parts in self.active.items()}, self.standby, self.warmup)

    @property
    def replicas(self) -> Iterator[TaskId]:
        """The standby and warm-up tasks."""
        for tasks in (self.standby, self.warmup):
            yield from task_ids(tasks)


NOTHING_OWNED = OwnedTasks()
NOTHING = Tasks()


def task_ids(tasks: Mapping[str, Iterable[int]]) -> Iterator[TaskId]:
    """The single tasks."""
    return ((name, partition) for name, partitions in tasks.items() for partition in partitions)


class TaskRow(Protocol):
    """The rows of requests and records that have tasks of a subtopology."""

    subtopology_id: str
    partitions: list[int]


def task_sets(rows: Iterable[TaskRow]) -> TaskSets:
    """The tasks of rows of a request or a record."""
    found: dict[str, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            found[row.subtopology_id] = found.get(row.subtopology_id, NO_PARTITIONS) | frozenset(row.partitions)
    return found
