"""Connectors in the store, as the REST API shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.connect.api import Config
from ottla.connect.errors import ConnectError, NotFoundError
from ottla.connect.herder.core import Force
from ottla.connect.herder.plugin_source import PluginInfo, Plugins
from ottla.connect.plugins import plugin_name
from ottla.connect.runtime import State, Status, Store, TaskId


class Views:
    """Reads of the store. All methods raise NotFoundError for a connector that does not exist."""

    def __init__(self, store: Store, plugins: Plugins) -> None:
        self._store = store
        self._plugins = plugins
        self._found: dict[str, PluginInfo | None] = {}

    def require(self, name: str) -> Config:
        """Return the configuration of a connector."""
        config = self._store.config(name)
        if config is None:
            raise NotFoundError(f"Connector {name} not found")
        return config

    def info(self, name: str) -> dict[str, Any]:
        """Return the configuration, the tasks and the direction of a connector."""
        config = self.require(name)
        tasks = [{"connector": name, "task": number} for number in range(len(self._store.task_configs(name)))]
        return {"name": name, "config": dict(config), "tasks": tasks, "type": self.type(config)}

    def status(self, name: str, force: Force | None = None) -> dict[str, Any]:
        """Return the last known states; with `force`, as a restart changes them."""
        status = self._store.status(name)
        if status is None:
            raise NotFoundError(f"No status found for connector {name}")
        config = self._store.config(name)
        force = force or Force()
        tasks = [
            {"id": number, **self._state(each, config, restarts=number in force.tasks)}
            for number, each in sorted(self.task_states(name).items())
        ]
        return {
            "name": name,
            "connector": self._state(status, config, restarts=force.connector),
            "tasks": tasks,
            "type": self.type(config),
        }

    def task_states(self, name: str) -> dict[int, Status]:
        """Return the last known states of the tasks, by their numbers."""
        found = {}
        for number in range(len(self._store.task_configs(name))):
            status = self._store.task_status(TaskId(name, number))
            if status is not None:
                found[number] = status
        return found

    def task_status(self, task: TaskId) -> dict[str, Any]:
        """Return the last known state of a task."""
        status = self._store.task_status(task)
        if status is None:
            raise NotFoundError(f"No status found for task {task}")
        return {"id": task.task, **self._state(status, self._store.config(task.connector))}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return the configurations of the tasks."""
        self.require(name)
        return [
            {"id": {"connector": name, "task": number}, "config": dict(config)}
            for number, config in enumerate(self._store.task_configs(name))
        ]

    def type(self, config: Config | None) -> str:
        """Return the direction of a connector; `unknown` if its plugin cannot be loaded."""
        plugin = self._plugin(config)
        return "unknown" if plugin is None else str(plugin.kind)

    def _state(self, status: Status, config: Config | None, *, restarts: bool = False) -> dict[str, Any]:
        plugin = self._plugin(config)
        known = plugin is not None and status.state is not State.UNASSIGNED
        shown: dict[str, Any] = {
            "state": str(State.RESTARTING if restarts else status.state),
            "worker_id": status.worker_id,
            "version": plugin.version if known and plugin is not None else None,
        }
        if status.trace:
            shown["trace"] = status.trace
        return shown

    def _plugin(self, config: Config | None) -> PluginInfo | None:
        name = None if config is None else plugin_name(config)
        if not name:
            return None
        if name not in self._found:
            try:
                self._found[name] = self._plugins.connector(name)
            except ConnectError:
                return None  # the failed start of the connector says why
        return self._found[name]


def offsets_json(offsets: Any) -> Mapping[str, Any]:
    """Return offsets as the REST API shows them (KIP-875)."""
    return {"offsets": [{"partition": dict(each.partition), "offset": each.offset} for each in offsets]}
