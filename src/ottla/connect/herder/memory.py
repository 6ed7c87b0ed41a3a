"""A store in memory, for standalone workers and tests: each write is complete when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.connect.api import Config
from ottla.connect.runtime import State, Status, StoreListener, TargetState, TaskId


@dataclass
class _Entry:
    config: Config
    target: TargetState = TargetState.STARTED
    tasks: list[Config] = field(default_factory=list)
    applied: Config | None = None
    generation: int = 0
    needs_fencing: bool = False


class MemoryStore:
    """Implements `Store`. Set `listener` before the first write."""

    def __init__(self) -> None:
        self.listener: StoreListener | None = None
        self._entries: dict[str, _Entry] = {}
        self._statuses: dict[str, Status] = {}
        self._task_statuses: dict[TaskId, Status] = {}
        self._topics: dict[str, set[str]] = {}
        self._generation = 0
        # Counts outlive their connectors: tasks of a deleted connector may still run when it is created again.
        self._task_counts: dict[str, int] = {}

    async def refresh(self) -> None:
        """Return at once: there is nothing to read."""

    def connectors(self) -> Sequence[str]:
        return sorted(self._entries)

    def config(self, name: str) -> Config | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.config

    def target(self, name: str) -> TargetState:
        entry = self._entries.get(name)
        return TargetState.STARTED if entry is None else entry.target

    def task_configs(self, name: str) -> Sequence[Config]:
        entry = self._entries.get(name)
        return [] if entry is None else entry.tasks

    def applied_config(self, name: str) -> Config | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.applied

    def is_inconsistent(self, name: str) -> bool:
        """See `Store`: writes in memory are complete."""
        del name
        return False

    def task_generation(self, name: str) -> int:
        entry = self._entries.get(name)
        return 0 if entry is None else entry.generation

    def needs_fencing(self, name: str) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.needs_fencing

    def status(self, name: str) -> Status | None:
        return self._statuses.get(name)

    def task_status(self, task: TaskId) -> Status | None:
        return self._task_statuses.get(task)

    def topics(self, name: str) -> Sequence[str]:
        return sorted(self._topics.get(name, ()))

    def task_count(self, name: str) -> int | None:
        return self._task_counts.get(name)

    async def put_config(self, name: str, config: Config, target: TargetState | None = None) -> None:
        entry = self._entries.get(name)
        if entry is None:
            self._entries[name] = _Entry(dict(config), target or TargetState.STARTED)
        else:
            entry.config = dict(config)
            entry.target = target or entry.target
        self._tell(name)

    async def delete(self, name: str) -> None:
        self._entries.pop(name, None)
        self._statuses.pop(name, None)
        self._topics.pop(name, None)
        for task in [each for each in self._task_statuses if each.connector == name]:
            del self._task_statuses[task]
        self._tell(name)

    async def put_target(self, name: str, target: TargetState) -> None:
        if name in self._entries:
            self._entries[name].target = target
        self._tell(name)

    async def put_task_configs(self, name: str, configs: Sequence[Config]) -> None:
        if name in self._entries:
            entry = self._entries[name]
            self._generation += 1
            entry.tasks, entry.applied = [dict(each) for each in configs], entry.config
            entry.generation, entry.needs_fencing = self._generation, True
        self._tell(name)

    async def put_restart(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        if self.listener is not None:
            self.listener.restart_requested(name, only_failed=only_failed, include_tasks=include_tasks)

    async def put_logger(self, logger: str, level: str) -> None:
        if self.listener is not None:
            self.listener.logger_changed(logger, level)

    async def put_task_count(self, name: str, count: int) -> None:
        if name in self._entries:
            self._task_counts[name], self._entries[name].needs_fencing = count, False

    def put_status(self, name: str, status: Status) -> None:
        if status.state is State.DESTROYED:
            self._statuses.pop(name, None)
        else:
            self._statuses[name] = status

    def put_task_status(self, task: TaskId, status: Status) -> None:
        if status.state is State.DESTROYED:
            self._task_statuses.pop(task, None)
        else:
            self._task_statuses[task] = status

    def put_topic(self, name: str, topic: str) -> None:
        self._topics.setdefault(name, set()).add(topic)

    async def reset_topics(self, name: str) -> None:
        self._topics.pop(name, None)

    def _tell(self, name: str) -> None:
        if self.listener is not None:
            self.listener.changed(name)
