"""The sticky task assignor: tasks stay where they are as far as the load allows it.

Active tasks first return to the member that had them, then to a member that had a standby task of them, whose state is
nearly complete; the others go to the process with the least load. Then standby tasks of subtopologies with state get
processes that do not have the task yet. The load of a process is its number of tasks divided by its members.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinators.group.streams.tasks import TaskId, Tasks, TaskSets, task_ids


class MemberSpec(NamedTuple):
    """One member: its process, and its present target assignment."""

    process_id: str
    target: Tasks


class SubtopologySpec(NamedTuple):
    """One subtopology: its number of tasks, and whether it has state."""

    tasks: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class StreamsSpec:
    """The members and subtopologies by id."""

    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    standby_replicas: int = 0


class _Process:
    """The members of one process with their tasks."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()

    @property
    def load(self) -> float:
        """Tasks per member."""
        return len(self.tasks) / len(self.counts)

    def least_loaded(self) -> str:
        """The member with the fewest tasks; the first one of several."""
        return min(self.counts, key=self.counts.__getitem__)


class _Quota:
    """How many tasks a member may have, so that all have about as many. Members that are full are not counted."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members

    @property
    def most(self) -> int:
        """The most tasks of a member, rounded up."""
        return -(-self._tasks // self._members) if self._members else 0

    def note(self, count: int) -> None:
        """Note that a member has `count` tasks now."""
        if count == self.most and self._members:
            self._members -= 1
            self._tasks -= count


class _Assignment:
    def __init__(self, spec: StreamsSpec) -> None:
        self.spec = spec
        names = sorted(spec.members)
        self.processes: dict[str, _Process] = {}
        self.active: dict[str, set[TaskId]] = {name: set() for name in names}
        self.standby: dict[str, set[TaskId]] = {name: set() for name in names}
        self.previous_active: dict[TaskId, str] = {}
        self.previous_standby: dict[TaskId, list[str]] = {}
        for name in names:
            process_id, target = spec.members[name]
            process = self.processes.setdefault(process_id, _Process(len(self.processes)))
            process.counts[name] = 0
            self.previous_active.update(dict.fromkeys(task_ids(target.active), name))
            for task in task_ids(target.standby):
                self.previous_standby.setdefault(task, []).append(name)
        actives = sum(each.tasks for each in spec.subtopologies.values())
        standbys = sum(each.tasks for each in spec.subtopologies.values() if each.is_stateful) * spec.standby_replicas
        self.active_quota = _Quota(actives, len(names))
        self.total_quota = _Quota(actives + standbys, len(names))

    def process(self, member: str) -> _Process:
        """The process of a member."""
        return self.processes[self.spec.members[member].process_id]

    def count(self, member: str) -> int:
        """How many tasks a member has."""
        return self.process(member).counts[member]

    def give(self, member: str, task: TaskId, *, is_active: bool) -> None:
        """Assign a task."""
        process = self.process(member)
        (self.active if is_active else self.standby)[member].add(task)
        process.tasks.add(task)
        process.counts[member] += 1
        if is_active:
            self.active_quota.note(process.counts[member])
        self.total_quota.note(process.counts[member])

    def heap(self) -> list[tuple[float, int, _Process]]:
        """The processes, the one with the least load first."""
        rows = [(process.load, process.order, process) for process in self.processes.values()]
        heapq.heapify(rows)
        return rows

    def nearest(self, task: TaskId) -> str | None:
        """The member with the least load that had a standby task of `task`, in a process without the task."""
        found = [name for name in self.previous_standby.get(task, ()) if task not in self.process(name).tasks]
        return min(found, key=lambda name: (self.process(name).load, self.count(name)), default=None)


def assign_stickily(spec: StreamsSpec) -> dict[str, Tasks]:
    """Return the tasks of each member; empty without members."""
    if not spec.members:
        return {}
    state = _Assignment(spec)
    _assign_active(state)
    if spec.standby_replicas:
        _assign_standby(state)
    return {name: Tasks(_sets(state.active[name]), _sets(state.standby[name])) for name in spec.members}


def _assign_active(state: _Assignment) -> None:
    tasks = [(name, index) for name, row in state.spec.subtopologies.items() for index in range(row.tasks)]
    left = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0])):
        member = state.previous_active.get(task)
        if member is not None and state.count(member) < state.active_quota.most:
            state.give(member, task, is_active=True)
        else:
            left.append(task)
    rest = []
    for task in left:
        member = state.nearest(task)
        if member is not None and state.count(member) < state.active_quota.most:
            state.give(member, task, is_active=True)
        else:
            rest.append(task)
    heap = state.heap()
    for task in sorted(rest):
        process = heap[0][2]
        state.give(process.least_loaded(), task, is_active=True)
        heapq.heapreplace(heap, (process.load, process.order, process))


def _assign_standby(state: _Assignment) -> None:
    rows = state.spec.subtopologies.items()
    tasks = [(name, index) for name, row in rows if row.is_stateful for index in range(row.tasks)]
    left: list[tuple[TaskId, int]] = []
    for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
        replicas = state.spec.standby_replicas
        while replicas:
            member = _previous(state, task)
            if member is None:
                break
            state.give(member, task, is_active=False)
            replicas -= 1
        left.append((task, replicas))
    heap = state.heap()
    for task, replicas in sorted(left, reverse=True):
        for _ in range(replicas):
            if not _give_to_least_loaded(state, heap, task):
                break  # fewer processes than replicas


def _previous(state: _Assignment, task: TaskId) -> str | None:
    """The member that had the task as active or standby task, and may have it as standby task now."""
    for member in (state.previous_active.get(task), state.nearest(task)):
        if member is None or task in state.process(member).tasks:
            continue
        if state.count(member) < state.total_quota.most:
            return member
    return None


def _give_to_least_loaded(state: _Assignment, heap: list[tuple[float, int, _Process]], task: TaskId) -> bool:
    """Assign a standby task to the process with the least load that does not have the task; False if all have it."""
    skipped = []
    is_given = False
    while heap and not is_given:
        row = heapq.heappop(heap)
        process = row[2]
        if task not in process.tasks:
            state.give(process.least_loaded(), task, is_active=False)
            row = (process.load, process.order, process)
            is_given = True
        skipped.append(row)
    for row in skipped:
        heapq.heappush(heap, row)
    return is_given


def _sets(tasks: Iterable[TaskId]) -> TaskSets:
    found: dict[str, set[int]] = {}
    for name, index in tasks:
        found.setdefault(name, set()).add(index)
    return {name: frozenset(indexes) for name, indexes in found.items()}
