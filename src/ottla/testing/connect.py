"""Runs single connectors in tests, without the REST API: in this process, or in one that is killed at a given step.

    worker = ConnectWorker(ottla.bootstrap, {"exactly.once.source.support": "enabled"})
    worker.start({"name": "n", "connector.class": "my_module:numbers", "topic": "t"})

`kill_at` names a step of `Step` and how often the task reaches it before the process gets SIGKILL.
Needs ottla[connect].
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

from ottla.connect.errors import ConnectError
from ottla.connect.runtime import Report, State, TargetState, TaskId
from ottla.connect.worker.runtime import WorkerRuntime
from ottla.connect.worker.steps import Reached, Step, nothing
from ottla.testing.waiting import wait_until

_CALL_S: Final = 30.0
DEFAULTS: Final = {"offset.flush.interval.ms": "100", "offset.storage.partitions": "1"}


class Change(NamedTuple):
    """A state that a task or a connector (task None) has reported."""

    name: str
    task: int | None
    state: State
    trace: str


class Listener:
    """Remembers all reports of a runtime."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.topics: set[str] = set()
        self.newer_generation = False
        """Whether tasks learn that another worker has taken their place."""

    async def check_task(self, task: TaskId, generation: int) -> None:
        """Refuse tasks if a newer generation exists."""
        if self.newer_generation:
            raise ConnectError(f"Task {task} of generation {generation} is not the newest one")

    def connector_changed(self, name: str, state: State, trace: str = "") -> None:
        """Remember a state."""
        self.changes.append(Change(name, None, state, trace))

    def task_changed(self, task: TaskId, state: State, trace: str = "") -> None:
        """Remember a state."""
        self.changes.append(Change(task.connector, task.task, state, trace))

    def tasks_requested(self, name: str) -> None:
        """Remember nothing: tests restart connectors themselves."""

    def topic_used(self, name: str, topic: str) -> None:
        """Remember a topic."""
        del name
        self.topics.add(topic)


class ConnectWorker:
    """A runtime on an event loop in a thread of its own."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str] | None = None, reached: Reached = nothing) -> None:
        self.listener = Listener()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="connect-worker", daemon=True)
        self._thread.start()
        given = {"bootstrap.servers": bootstrap, **DEFAULTS, **(settings or {})}
        self.runtime = WorkerRuntime(given, self.listener, reached=reached)

    def call(self, coroutine: Any) -> Any:
        """Run a method of the runtime on its loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_CALL_S)

    def start(self, config: Mapping[str, str], target: TargetState = TargetState.STARTED) -> list[TaskId]:
        """Start a connector and all its tasks. Raises ConnectError if the connector does not start."""
        return self.call(self._start(config, target))  # type: ignore[no-any-return]

    async def _start(self, config: Mapping[str, str], target: TargetState) -> list[TaskId]:
        name = config["name"]
        self.runtime.start_connector(name, config, TargetState.STARTED)
        configs = await self.runtime.task_configs(name)
        tasks = [TaskId(name, number) for number in range(len(configs))]
        for task, own in zip(tasks, configs, strict=True):
            self.runtime.start_task(task, config, own, target, 1)
        return tasks

    def pause(self, tasks: list[TaskId], *, paused: bool = True) -> None:
        """Pause tasks, or have them go on."""

        async def apply() -> None:
            for task in tasks:
                target = TargetState.PAUSED if paused else TargetState.STARTED
                self.runtime.start_task(task, {}, {}, target, 1)

        self.call(apply())

    def stop(self, tasks: list[TaskId]) -> None:
        """Stop tasks."""
        self.call(self.runtime.stop_tasks(tasks))

    def report(self, task: TaskId) -> Report:
        """Return the report of a task."""
        report = self.runtime.report(task)
        assert report is not None
        return report

    def wait_for(self, state: State) -> Change:
        """Wait until a task has reported a state, and return the first such report."""

        def found() -> Change | None:
            return next((each for each in self.listener.changes if each.task is not None and each.state is state), None)

        change = wait_until(found, _CALL_S, what=lambda: f"a task that is {state}; {self.listener.changes}")
        assert change is not None
        return change

    def close(self) -> None:
        """Stop everything."""
        self.call(self.runtime.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class KillAt(NamedTuple):
    """Kills the process with SIGKILL when a task reaches a step for the `times`th time."""

    step: Step
    times: int = 1


class ConnectProcess:
    """One connector in a process of its own."""

    def __init__(
        self,
        bootstrap: str,
        config: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        kill_at: KillAt | None = None,
    ) -> None:
        given = {"bootstrap.servers": bootstrap, **DEFAULTS, **(settings or {})}
        kill = None if kill_at is None else [kill_at.step.value, kill_at.times]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = self._start(
            [sys.executable, "-m", "ottla.testing.connect_child", json.dumps([given, dict(config), kill])], self._log
        )

    def _start(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the process, which ends when its standard input does."""
        return subprocess.Popen(  # noqa: S603 - our own interpreter
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def log(self) -> str:
        """All that the process has written."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def wait_until_killed(self, timeout_s: float = _CALL_S) -> None:
        """Wait until the process has reached the step of `kill_at`. Raises AssertionError if it ends otherwise."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The process was not killed within {timeout_s:g} s: {self.log()}") from None
        if code != -signal.SIGKILL:
            raise AssertionError(f"The process ended with {code}: {self.log()}")

    def resident_bytes(self) -> int:
        """The memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("The process has ended")

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait(_CALL_S)

    def close(self) -> None:
        """Kill the process if it runs."""
        if self._process.poll() is None:
            self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
