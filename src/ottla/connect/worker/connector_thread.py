"""The thread of one connector: it starts and stops the instance, and asks it for task configurations."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from ottla.connect.api import Config, Connector, ConnectorContext
from ottla.connect.config.definition import SettingType
from ottla.connect.errors import ConnectError
from ottla.connect.runtime import State, TargetState
from ottla.connect.worker.daemon import Daemon
from ottla.connect.worker.failures import delay_ms, retriable_kind, trace_of
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.task_settings import setting

logger = logging.getLogger("ottla.connect.worker")
Changed: TypeAlias = Callable[[State, str], None]


@dataclass(frozen=True)
class ConnectorEnvironment:
    """The surroundings of a connector. `open` creates an instance, its context and its resolved settings."""

    name: str
    open: Callable[[Callable[[Exception], None]], tuple[Connector, ConnectorContext, Config]]
    changed: Changed
    secrets: Secrets


class ConnectorThread:
    """Runs one connector. Its methods do not wait; the instance is used by one thread."""

    def __init__(self, environment: ConnectorEnvironment) -> None:
        self._environment = environment
        self.secrets = environment.secrets
        self._thread = Daemon(f"connector-{environment.name}")
        self._instance: Connector | None = None
        self._config: Config = {}
        self._stopping = threading.Event()
        self._wish = TargetState.STARTED
        self._failure: Exception | None = None

    def apply(self, target: TargetState) -> None:
        """Start or stop the instance, as an operator wishes."""
        self._wish = target
        self._thread.submit(self._apply, target)

    def _apply(self, target: TargetState) -> None:
        tried = 0
        while not self._stopping.is_set() and target is self._wish:
            try:
                self._to(target)
            except Exception as error:  # noqa: BLE001 - the code of connectors may raise anything; it is reported
                tried += 1
                if not self._tries_again(error, tried):
                    return
            else:
                return

    def _to(self, target: TargetState) -> None:
        if target is TargetState.STARTED:
            if self._instance is None:
                self._start()
            self._environment.changed(State.RUNNING, "")
            return
        self._close()
        self._environment.changed(State.PAUSED if target is TargetState.PAUSED else State.STOPPED, "")

    def _start(self) -> None:
        instance, context, config = self._environment.open(self._failed)
        self._instance, self._config = instance, config
        self._failure = None
        try:
            instance.start(context, config)
        except Exception:
            self._close()
            raise

    def _tries_again(self, error: Exception, tried: int) -> bool:
        kind = retriable_kind(error)
        trace = trace_of(error, self._environment.secrets)
        if kind is None:
            self._failure = error
            logger.error("Connector %s failed: %s", self._environment.name, trace)
            self._environment.changed(State.FAILED, trace)
            return False
        wait_ms = delay_ms(kind, tried)
        logger.warning("Connector %s failed and starts again in %d ms: %s", self._environment.name, wait_ms, trace)
        self._environment.changed(State.RESTARTING, trace)
        return not self._stopping.wait(wait_ms / 1000)

    def _failed(self, error: Exception) -> None:
        """Learn from the connector, in any thread, that it cannot go on."""
        self._failure = error
        self._environment.changed(State.FAILED, trace_of(error, self._environment.secrets))

    def task_configs(self) -> Future[Sequence[Config]]:
        """Ask for the settings of the tasks. The future raises ConnectError."""
        return self._thread.submit(self._task_configs)

    def _task_configs(self) -> Sequence[Config]:
        name = self._environment.name
        if self._instance is None or self._failure is not None:
            raise ConnectError(f"The connector {name} does not run: {self._failure or 'it is paused or stopped'}")
        most = setting(self._config, "tasks.max", SettingType.INT, 1)
        configs = [dict(each) for each in self._instance.task_configs(most)]
        if len(configs) > most and setting(self._config, "tasks.max.enforce", SettingType.BOOLEAN, True):
            raise ConnectError(
                f"The connector {name} has generated {len(configs)} tasks, which is greater than {most}, the maximum "
                "number of tasks it is configured to create. This behaviour should be considered a bug and is "
                "disallowed. If necessary, it can be permitted by reconfiguring the connector with "
                "'tasks.max.enforce' set to false; however, this option will be removed in a future release of "
                "Kafka Connect."
            )
        task_class = type(self._instance).task_class
        name = task_class.java_class or f"{task_class.__module__}.{task_class.__qualname__}"
        return [{**each, "task.class": name} for each in configs]

    def stop(self) -> Future[None]:
        """Stop the instance and the thread."""
        self._stopping.set()
        future = self._thread.submit(self._close)
        self._thread.finish()
        return future

    def _close(self) -> None:
        instance, self._instance = self._instance, None
        if instance is None:
            return
        try:
            instance.stop()
        except Exception as error:  # noqa: BLE001 - the code of connectors may raise anything; the stop goes on
            trace = trace_of(error, self._environment.secrets)
            logger.warning("Connector %s failed while it stopped: %s", self._environment.name, trace)
