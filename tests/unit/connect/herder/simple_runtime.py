"""A runtime without tasks: it runs the code of connectors, and only remembers which tasks were started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.connect.api import Config, Connector, ConnectorContext, SourceOffset
from ottla.connect.errors import BadRequestError, ConnectError
from ottla.connect.herder.plugin_source import PluginKind, Plugins
from ottla.connect.runtime import Report, State, StatusListener, TargetState, TaskId

_STATES = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


@dataclass
class SimpleRuntime:
    """Implements `Runtime`. Set `listener` before the first start."""

    plugins: Plugins
    listener: StatusListener | None = None
    connectors: dict[str, tuple[Connector, Config, TargetState]] = field(default_factory=dict)
    tasks: dict[TaskId, tuple[Config, TargetState, int]] = field(default_factory=dict)
    committed: dict[str, list[SourceOffset]] = field(default_factory=dict)
    fenced: list[tuple[str, int | None]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def start_connector(self, name: str, config: Config, target: TargetState) -> None:
        self.calls.append(f"start {name} {target}")
        if name not in self.connectors:
            connector = self.plugins.connector(config["connector.class"]).type()
            connector.start(ConnectorContext(name, lambda: None, lambda _: None, lambda _: None), config)
        else:
            connector = self.connectors[name][0]
        self.connectors[name] = (connector, config, target)
        assert self.listener is not None
        self.listener.connector_changed(name, _STATES[target])

    async def stop_connector(self, name: str) -> None:
        self.calls.append(f"stop {name}")
        await asyncio.sleep(0)
        assert self.listener is not None
        if self.connectors.pop(name, None) is not None:
            self.listener.connector_changed(name, State.UNASSIGNED)

    async def task_configs(self, name: str) -> Sequence[Config]:
        await asyncio.sleep(0)
        if name not in self.connectors:
            raise ConnectError(f"{name} does not run")
        connector, config, _ = self.connectors[name]
        task = type(connector).task_class
        java = config["connector.class"].removesuffix("Connector") + "Task"
        assert task is not None
        return [{**each, "task.class": java} for each in connector.task_configs(int(config.get("tasks.max", "1")))]

    def start_task(self, task: TaskId, connector: Config, config: Config, target: TargetState, generation: int) -> None:
        self.calls.append(f"start {task} {target} {generation}")
        self.tasks[task] = (config, target, generation)
        assert self.listener is not None
        if "topic" in config:
            self.listener.topic_used(task.connector, config["topic"])
        self.committed.setdefault(task.connector, self._first_offsets(connector))
        self.listener.task_changed(task, _STATES[target])

    def _first_offsets(self, connector: Config) -> list[SourceOffset]:
        if self.plugins.connector(connector["connector.class"]).kind is PluginKind.SOURCE:
            return [SourceOffset({"filename": connector.get("file")}, {"position": 8})]
        return [SourceOffset({"kafka_topic": "t-src", "kafka_partition": 0}, {"kafka_offset": 2})]

    async def stop_tasks(self, tasks: Sequence[TaskId]) -> None:
        await asyncio.sleep(0)
        for each in tasks:
            self.calls.append(f"stop {each}")
            if self.tasks.pop(each, None) is not None:
                assert self.listener is not None
                self.listener.task_changed(each, State.UNASSIGNED)

    async def fence(self, name: str, config: Config, tasks: int | None) -> None:
        del config
        await asyncio.sleep(0)
        self.fenced.append((name, tasks))

    async def validate(self, config: Config) -> Mapping[str, Sequence[str]]:
        plugin = self.plugins.connector(config["connector.class"])
        problems: Mapping[str, Sequence[str]] = plugin.type.problems(config)
        return problems

    async def offsets(self, name: str, config: Config) -> Sequence[SourceOffset]:
        del config
        return self.committed.get(name, [])

    async def alter_offsets(self, name: str, config: Config, offsets: Sequence[SourceOffset] | None) -> str:
        plugin = self.plugins.connector(config["connector.class"])
        if plugin.kind is PluginKind.SOURCE:
            plugin.type.alter_offsets(config, offsets)
        if any(not each.partition for each in offsets or ()):
            raise BadRequestError("A partition is empty")
        self.committed[name] = [each for each in offsets or () if each.offset is not None]
        return f"The offsets for this connector have been {'reset' if offsets is None else 'altered'} successfully"

    def report(self, task: TaskId) -> Report | None:
        return Report() if task in self.tasks else None

    async def close(self) -> None:
        self.connectors.clear()
        self.tasks.clear()
