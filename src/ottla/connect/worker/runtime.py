"""The runtime that runs connectors and tasks in threads of this process. See `ottla.connect.runtime.Runtime`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from ottla.common.settings import ChangingText
from ottla.connect import plugins
from ottla.connect.api import Config, Connector, ConnectorContext, SourceOffset
from ottla.connect.config.definition import Password
from ottla.connect.errors import ConnectError, NotFoundError, RetriableError
from ottla.connect.records import Position
from ottla.connect.runtime import Report, StatusListener, TargetState, TaskId
from ottla.connect.worker import offset_admin
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.connector_thread import ConnectorEnvironment, ConnectorThread
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.daemon import Daemon
from ottla.connect.worker.environment import TaskEnvironment
from ottla.connect.worker.failures import raise_without_secrets, trace_of
from ottla.connect.worker.fencing import fence_tasks
from ottla.connect.worker.offset_store import OffsetStore, OffsetStores
from ottla.connect.worker.providers import Providers, Secrets, has_changing_credentials
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.sink import SinkLife
from ottla.connect.worker.source import SourceLife
from ottla.connect.worker.steps import Reached, nothing
from ottla.connect.worker.task_thread import TaskThread

logger = logging.getLogger("ottla.connect.worker")
_CHECK_S: Final = 60.0
MOST_OPERATIONS: Final = 32
"""How many validations, reads of offsets and so on may wait for other systems at the same time."""
T = TypeVar("T")


class WorkerRuntime:
    """Implements `Runtime` with one thread for each connector and each task. Used on one event loop."""

    def __init__(self, settings: Mapping[str, str], listener: StatusListener, *, reached: Reached = nothing) -> None:
        """Read the settings of the worker. Raises SettingError and InvalidConfigError."""
        self._providers = Providers(settings)
        self._secrets = Secrets()
        self._settings = WorkerSettings.read(self._providers.resolve(settings, self._secrets))
        self._secrets.add_named(self._settings.given)
        self._rereads = any(isinstance(each, ChangingText) for each in self._settings.given.values())
        self._listener = listener
        self._reached = reached
        self._stores = OffsetStores()
        self._operations: set[Future[Any]] = set()
        self._connectors: dict[str, ConnectorThread] = {}
        self._tasks: dict[TaskId, TaskThread] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- connectors --------------------------------------------------------------------------------------------------

    def start_connector(self, name: str, config: Config, target: TargetState) -> None:
        """Start an instance of a connector, or apply another target state to it."""
        self._loop = asyncio.get_running_loop()
        thread = self._connectors.get(name)
        if thread is None:
            thread = self._connectors[name] = ConnectorThread(self._connector_environment(name, config))
        thread.apply(target)

    def _connector_environment(self, name: str, config: Config) -> ConnectorEnvironment:
        secrets = self._secrets.copy()

        def open_connector(fail: Callable[[Exception], None]) -> tuple[Connector, ConnectorContext, Config]:
            connector_class, resolved = self._resolved(config, secrets)

            def offset(partition: Position) -> Position | None:
                store = self._store(resolved)
                store.refresh()
                return store.get(name, partition)

            requested = partial(self._notify, self._listener.tasks_requested, name)
            return connector_class(), ConnectorContext(name, requested, fail, offset), resolved

        changed = partial(self._notify, self._listener.connector_changed, name)
        return ConnectorEnvironment(name, open_connector, changed, secrets)

    def _resolved(self, config: Config, secrets: Secrets) -> tuple[type[Connector], dict[str, str]]:
        """Return the class of a connector and its settings with values for variables; passwords become secrets."""
        connector_class = plugins.connector_class(plugins.plugin_name(config))
        resolved = self._providers.resolve(config, secrets)
        for each in connector_class.config_def:
            value = resolved.get(each.name)
            if value is not None and isinstance(_parsed(each, value), Password):
                secrets.add(value)
        secrets.add_named(resolved)
        return connector_class, resolved

    async def stop_connector(self, name: str) -> None:
        """Stop the instance, and wait until it has ended, at most for task.shutdown.graceful.timeout.ms."""
        thread = self._connectors.pop(name, None)
        if thread is None:
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(thread.stop()), self._settings.shutdown_timeout_ms / 1000)
        except TimeoutError:
            logger.warning("Connector %s did not stop in time; its thread is abandoned", name)

    async def task_configs(self, name: str) -> Sequence[Config]:
        """Ask the running instance for its task configurations. Raises ConnectError."""
        thread = self._connectors.get(name)
        if thread is None:
            raise NotFoundError(f"Connector {name} does not run on this worker")
        secrets = thread.secrets
        try:
            return await asyncio.wrap_future(thread.task_configs())
        except ConnectError as error:
            raise_without_secrets(error, secrets)
        except Exception as error:  # noqa: BLE001 - the code of a plugin may raise anything
            raise ConnectError(trace_of(error, secrets)) from None

    # -- tasks -------------------------------------------------------------------------------------------------------

    def start_task(self, task: TaskId, connector: Config, config: Config, target: TargetState, generation: int) -> None:
        """Start a task, or apply another target state to it."""
        self._loop = asyncio.get_running_loop()
        running = self._tasks.get(task)
        if running is not None:
            # The task reports its new state when it has stopped or started to move records.
            running.control.pause(paused=target is not TargetState.STARTED)
            return
        control, secrets = TaskControl(), self._secrets.copy()
        control.pause(paused=target is not TargetState.STARTED)
        changed = partial(self._notify, self._listener.task_changed, task)

        def live() -> None:
            connector_class, resolved = self._resolved(connector, secrets)
            environment = TaskEnvironment(
                task,
                self._settings,
                connector_class,
                resolved,
                self._providers.resolve(config, secrets),
                control,
                self._stores,
                secrets,
                partial(self._check_generation, task, generation),
                partial(self._notify, self._listener.topic_used, task.connector),
                self._reached,
                lambda paused: thread.shows(paused=paused),
            )
            life = connector_class.life(environment)
            if life is None:
                life = SourceLife(environment) if offset_admin.is_source(connector_class) else SinkLife(environment)
            life.run()

        rereads = has_changing_credentials(connector) or self._rereads
        thread = TaskThread(task, control, live, changed, secrets, rereads=rereads)
        self._tasks[task] = thread
        thread.start()

    def _check_generation(self, task: TaskId, generation: int) -> None:
        """Ask the herder, from the task's thread, whether the task is still this worker's. Raises ConnectError."""
        assert self._loop is not None
        asked = asyncio.run_coroutine_threadsafe(self._listener.check_task(task, generation), self._loop)
        try:
            asked.result(_CHECK_S)
        except TimeoutError as error:
            raise RetriableError(f"The worker did not confirm the task {task} within {_CHECK_S:g} s") from error

    async def stop_tasks(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks, and wait until they have ended, at most for task.shutdown.graceful.timeout.ms."""
        threads = [thread for each in tasks if (thread := self._tasks.pop(each, None)) is not None]
        for thread in threads:
            thread.control.stop()
        deadline = time.monotonic() + self._settings.shutdown_timeout_ms / 1000
        for thread in threads:
            if not await asyncio.to_thread(thread.join, max(0.0, deadline - time.monotonic())):
                logger.warning("Task %s did not stop in time; its thread is abandoned", thread.task)

    def report(self, task: TaskId) -> Report | None:
        """Return what a task of this worker says of itself."""
        running = self._tasks.get(task)
        return None if running is None else running.report()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def fence(self, name: str, config: Config, tasks: int | None) -> None:
        """Fence the transactional producers of older tasks of an exactly-once source (KIP-618)."""
        secrets = self._secrets.copy()
        _, resolved = self._resolved(config, secrets)
        if tasks != 0:
            group_id, clients = self._settings.group_id, Clients(self._settings, resolved)
            await self._in_thread(partial(fence_tasks, clients, group_id, name, tasks), secrets)

    async def validate(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Ask the plugin for problems that its definitions do not show: messages by the name of the setting."""
        secrets = self._secrets.copy()
        connector_class, resolved = self._resolved(config, secrets)
        return await self._in_thread(partial(connector_class.problems, resolved), secrets)

    async def offsets(self, name: str, config: Config) -> Sequence[SourceOffset]:
        """Read the committed offsets of a connector; offsets of a sink have the form of the REST API (KIP-875)."""
        secrets = self._secrets.copy()
        connector_class, resolved = self._resolved(config, secrets)
        if not offset_admin.is_source(connector_class):
            return await self._in_thread(
                partial(offset_admin.read_sink_offsets, name, Clients(self._settings, resolved)), secrets
            )
        store = self._store(resolved)

        def read() -> Sequence[SourceOffset]:
            store.refresh()
            return store.all(name)

        return await self._in_thread(read, secrets)

    async def alter_offsets(self, name: str, config: Config, offsets: Sequence[SourceOffset] | None) -> str:
        """Write offsets of a stopped connector, None: delete all. Returns the message for the user."""
        secrets = self._secrets.copy()
        connector_class, resolved = self._resolved(config, secrets)
        clients = Clients(self._settings, resolved)

        def alter() -> None:
            connector_class.alter_offsets(resolved, offsets)
            if offset_admin.is_source(connector_class):
                offset_admin.alter_source_offsets(name, clients, self._store(resolved), offsets)
            else:
                offset_admin.alter_sink_offsets(name, clients, offsets)

        await self._in_thread(alter, secrets)
        return offset_admin.message(connector_class, offsets)

    async def close(self) -> None:
        """Stop everything."""
        await self.stop_tasks(list(self._tasks))
        await asyncio.gather(*(self.stop_connector(name) for name in list(self._connectors)))
        daemon = Daemon("close the stores of offsets")
        closing = asyncio.wrap_future(daemon.submit(self._stores.close))
        daemon.finish()
        _, pending = await asyncio.wait([closing], timeout=self._settings.shutdown_timeout_ms / 1000)
        if pending:
            logger.warning("The stores of offsets did not close in time; their thread is abandoned")

    def _store(self, config: Config) -> OffsetStore:
        topic = config.get("offsets.storage.topic") or self._settings.offsets_topic
        return self._stores.of(Clients(self._settings, config), topic)

    async def _in_thread(self, call: Callable[[], T], secrets: Secrets) -> T:
        """Run a call that waits for another system. Errors of clients and plugins become ConnectError.

        Each has a thread of its own: a call that never returns must not delay others, or the end of the process.
        """
        if len(self._operations) >= MOST_OPERATIONS:
            raise RetriableError(f"{MOST_OPERATIONS} operations on connectors wait for other systems: try again later")
        daemon = Daemon("operation")
        operation = daemon.submit(call)
        self._operations.add(operation)
        operation.add_done_callback(self._operations.discard)
        daemon.finish()
        try:
            # A request that is given up must not free the place of a thread that goes on.
            return await asyncio.shield(asyncio.wrap_future(operation))
        except Exception as error:  # noqa: BLE001 - the code of a plugin may raise anything
            raise_without_secrets(error, secrets)

    def _notify(self, method: Callable[..., None], *arguments: Any) -> None:
        """Call the listener on the event loop, from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(method, *arguments)


def _parsed(each: Any, value: str) -> object:
    """Return a parsed setting; a value that is not valid is not a password."""
    try:
        return each.parse(value)
    except ValueError:
        return None
