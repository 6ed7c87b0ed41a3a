"""The operations of the REST API over the store, the runtime and the group of workers.

One herder serves standalone and distributed workers: `Membership` says who leads and which work is this worker's.
Methods raise the errors of `ottla.connect.errors`; NotLeaderError names the worker that can do the operation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.api import Config, SourceOffset
from ottla.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConnectError,
    InvalidConfigError,
    NotFoundError,
    NotLeaderError,
    RebalanceNeededError,
)
from ottla.connect.herder import common_settings as common
from ottla.connect.herder import sink_offsets
from ottla.connect.herder.core import (
    Force,
    RestartRequest,
    has_variable,
    needs_task_write,
    patched,
    restarted,
    too_many_tasks,
    with_variables,
)
from ottla.connect.herder.described import Validation
from ottla.connect.herder.loggers import Loggers
from ottla.connect.herder.plugin_source import PluginKind
from ottla.connect.herder.reconciler import Reconciler
from ottla.connect.herder.validation import Given, Validator, add_problems, invalid_text
from ottla.connect.herder.views import Views, offsets_json
from ottla.connect.runtime import (
    Assignment,
    Membership,
    Runtime,
    State,
    Status,
    StatusListener,
    Store,
    TargetState,
    TaskId,
)

logger = logging.getLogger(__name__)

_MODIFY: Final = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
)


OpenRuntime = Callable[[StatusListener], Runtime]


@dataclass(frozen=True)
class Environment:
    """The parts of the worker that the herder needs besides its work."""

    cluster_id: Callable[[], Awaitable[str]]
    """Return the id of the Kafka cluster."""
    exactly_once: bool = True
    """Whether sources write exactly once, if they can."""
    resolve: Callable[[Config], Config] = lambda config: config
    """Replace variables by their values, for validation alone."""
    remembers_tasks: bool = True
    """Whether the store knows the numbers of tasks of earlier workers."""


class Herder:
    """Also the listener of the store, of the runtime and of the membership. Belongs to one event loop."""

    def __init__(
        self, store: Store, runtime: OpenRuntime, membership: Membership, validator: Validator, environment: Environment
    ) -> None:  # fmt: skip
        """`runtime` opens the runtime, which reports to this herder."""
        self.store = store
        self.runtime = runtime(self)
        self.membership = membership
        self.validator = validator
        self.environment = environment
        self.views = Views(store, validator.plugins)
        self.loggers = Loggers()
        self._work = Reconciler(store, self.runtime, self, self._publish, self._fence_for_start)
        self._fences: dict[str, asyncio.Lock] = {}
        self._shape: dict[str, int] = {}
        self._generation = 0

    # What the store, the runtime and the group report.

    def changed(self, name: str) -> None:
        """Start and stop the changed parts, and have the work divided again if the number of tasks has changed."""
        shape = None if self.store.config(name) is None else len(self.store.task_configs(name))
        if shape != self._shape.get(name):
            if shape is None:
                self._shape.pop(name, None)
            else:
                self._shape[name] = shape
            self.membership.rejoin(f"the connector {name} or its number of tasks has changed")
        self._work.wake(name)

    def restart_requested(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        """Restart the parts of a connector that run here."""
        force = self._restart_force(RestartRequest(name, only_failed, include_tasks))
        mine = Force(
            force.connector and name in self._work.connectors,
            frozenset(each for each in force.tasks if TaskId(name, each) in self._work.tasks),
        )
        if mine.connector:
            self._write_state(name, State.RESTARTING)
        for each in mine.tasks:
            self.task_changed(TaskId(name, each), State.RESTARTING)
        if mine != Force():
            self._work.wake(name, mine)

    def logger_changed(self, name: str, level: str) -> None:
        """Set the level of a logger, as another worker asked for."""
        try:
            self.loggers.set_level(name, level)
        except ValueError as error:
            logger.warning("Ignoring a change of the logger %s: %s", name, error)

    async def check_task(self, task: TaskId, generation: int) -> None:
        """See `StatusListener`."""
        await self.store.refresh()
        if task not in self._work.tasks or self.store.task_generation(task.connector) != generation:
            raise ConnectError(f"The task {task} was configured again or given to another worker while it started")

    def connector_changed(self, name: str, state: State, trace: str = "") -> None:
        """Write the state of a connector, unless it was deleted."""
        self._work.reported(name, state)
        self._write_state(name, state, trace)

    def _write_state(self, name: str, state: State, trace: str = "") -> None:
        if self.store.config(name) is not None:
            self.store.put_status(name, self._status(state, trace))

    def task_changed(self, task: TaskId, state: State, trace: str = "") -> None:
        """Write the state of a task, unless it was deleted."""
        known = len(self.store.task_configs(task.connector))
        self.store.put_task_status(task, self._status(state if task.task < known else State.DESTROYED, trace))

    def _status(self, state: State, trace: str) -> Status:
        return Status(state, self.membership.worker_id, self._generation, trace)

    def tasks_requested(self, name: str) -> None:
        """Ask a connector for its tasks again."""
        self._work.wake(name, ask_tasks=True)

    def topic_used(self, name: str, topic: str) -> None:
        """Write that a connector uses a topic."""
        if topic not in self.store.topics(name) and self.store.config(name) is not None:
            self.store.put_topic(name, topic)

    async def assigned(self, assignment: Assignment) -> None:
        """Start the work of a new assignment."""
        self._generation = assignment.generation
        names = self._work.assign(assignment.connectors, assignment.tasks)
        self._shape = {name: len(self.store.task_configs(name)) for name in self.store.connectors()}
        for name in names:
            self._work.wake(name)

    async def revoked(self, connectors: frozenset[str], tasks: frozenset[TaskId]) -> None:
        """Stop a part of the work. Raises ConnectError if it does not stop."""
        names = {*connectors, *(each.connector for each in tasks)}
        self._work.assign(self._work.connectors - connectors, self._work.tasks - tasks)
        for name in names:
            self._work.wake(name)
        await self._work.settle(names)

    async def close(self) -> None:
        """Stop everything that runs here, and write the states."""
        try:
            await self.revoked(self._work.connectors, self._work.tasks)
        except ConnectError as error:
            logger.warning("Stopping although the work has not ended: %s", error)
        await self._work.close()
        await self.runtime.close()

    # Tasks of a connector that runs here.

    async def _publish(self, name: str) -> None:
        """Ask a connector for its tasks, and have the leader write them if they changed."""
        config = self.store.config(name)
        if config is None or self.store.target(name) is not TargetState.STARTED:
            return
        configs = await self.runtime.task_configs(name)
        most = int(config.get(common.TASKS_MAX, "1"))
        if len(configs) > most and config.get(common.TASKS_MAX_ENFORCE, "true").lower() != "false":
            raise ConnectError(too_many_tasks(name, len(configs), most))
        if self.store.config(name) != config or self.store.target(name) is not TargetState.STARTED:
            return  # the round for that change follows
        given = with_variables(config, configs)
        changed = needs_task_write(given, self.store.task_configs(name), config, self.store.applied_config(name))
        if not changed and not self.store.is_inconsistent(name):
            return
        try:
            self.membership.check_leader()
        except NotLeaderError:
            await self.membership.ask_leader("POST", f"/connectors/{quote(name, safe='')}/tasks", given)
        else:
            await self.put_task_configs(name, given)

    async def put_task_configs(self, name: str, configs: Sequence[Config]) -> None:
        """Write the configurations of all tasks, on the leader."""
        self.membership.check_leader()
        self.views.require(name)
        if self.store.target(name) is TargetState.STOPPED:
            raise BadRequestError(f"Cannot submit non-empty set of task configs for stopped connector {name}")
        await self.store.put_task_configs(name, configs)

    async def _fence_for_start(self, name: str) -> None:
        config = self.store.applied_config(name) or self.store.config(name)
        if config is None or not self._needs_fencing(name, config):
            return
        try:
            self.membership.check_leader()
        except NotLeaderError:
            await self.membership.ask_leader("PUT", f"/connectors/{quote(name, safe='')}/fence")
        else:
            await self.fence(name)

    def _needs_fencing(self, name: str, config: Config) -> bool:
        is_source = self.views.type(config) == PluginKind.SOURCE
        return self.environment.exactly_once and is_source and self.store.needs_fencing(name)

    async def fence(self, name: str) -> None:
        """Fence the producers of older tasks of an exactly-once source, on the leader, before new tasks start."""
        self.membership.check_leader()
        async with self._fences.setdefault(name, asyncio.Lock()):
            config = self.views.require(name)
            if not self._needs_fencing(name, config):
                return
            generation, tasks = self.store.task_generation(name), len(self.store.task_configs(name))
            await self.runtime.fence(name, config, self._older_tasks(name))
            if self.store.task_generation(name) != generation:
                raise RebalanceNeededError(f"The tasks of {name} were configured again while older ones were fenced")
            await self.store.put_task_count(name, tasks)

    def _older_tasks(self, name: str) -> int | None:
        count = self.store.task_count(name)
        return 0 if count is None and self.environment.remembers_tasks else count

    # Operations of the REST API.

    @property
    def is_ready(self) -> bool:
        """Whether this worker has an assignment."""
        return self.membership.assignment is not None

    async def validate(self, given: Given) -> Validation:
        """Return all faults of a configuration; values of variables are not in the result."""
        texts = {name: value for name, value in given.items() if value is not None}
        hidden = {name: value for name, value in texts.items() if has_variable(value)}
        resolved: dict[str, str | None] = {**given, **self.environment.resolve(texts)} if hidden else dict(given)
        result = await asyncio.to_thread(self.validator.check, resolved)
        if not result.messages:
            add_problems(result, await self.runtime.validate(texts))
        for row in result.rows:
            raw = hidden.get(row.value.name)
            secret = resolved.get(row.value.name)
            if raw is not None and secret:
                row.value.value = raw
                row.value.errors = [each.replace(secret, raw) for each in row.value.errors]
        return result

    async def put_config(
        self, name: str, config: Given, target: TargetState | None = None, *, replace: bool
    ) -> tuple[bool, dict[str, Any]]:
        """Create or configure a connector. Returns whether it is new, and its description."""
        self.membership.check_leader()
        result = await self.validate(config)
        if result.messages:
            raise InvalidConfigError(invalid_text(result.messages))
        self.membership.check_leader()
        exists = self.store.config(name) is not None
        if exists and not replace:
            raise AlreadyExistsError(f"Connector {name} already exists")
        texts = {key: value for key, value in config.items() if value is not None}
        await self.store.put_config(name, texts, target)
        return not exists, self.views.info(name)

    async def patch_config(self, name: str, patch: Given) -> dict[str, Any]:
        """Change some settings of a connector (KIP-477)."""
        self.membership.check_leader()
        await self.store.refresh()
        config = patched(self.views.require(name), patch)
        return (await self.put_config(name, config, replace=True))[1]

    async def delete(self, name: str) -> None:
        """Delete a connector."""
        self.membership.check_leader()
        self.views.require(name)
        await self.store.delete(name)

    async def set_target(self, name: str, target: TargetState) -> None:
        """Pause or resume a connector."""
        if self.store.config(name) is None:
            raise NotFoundError(f"Unknown connector {name}")
        if self.store.target(name) is not target:
            await self.store.put_target(name, target)

    async def stop(self, name: str) -> None:
        """Stop a connector, and delete its tasks but not its offsets."""
        self.membership.check_leader()
        if self.store.config(name) is None:
            raise NotFoundError(f"Unknown connector {name}")
        await self.store.put_target(name, TargetState.STOPPED)
        if self.store.task_configs(name):
            await self.store.put_task_configs(name, [])

    def _restart_force(self, request: RestartRequest) -> Force:
        status = self.store.status(request.connector)
        tasks = {number: each.state for number, each in self.views.task_states(request.connector).items()}
        return restarted(request, None if status is None else status.state, tasks)

    async def restart(self, request: RestartRequest) -> dict[str, Any] | None:
        """Restart a connector and its tasks; returns the states with those that restart (KIP-745).

        The restart of the instance alone returns None when the instance runs again. Raises ConnectError if it does not.
        """
        name = request.connector
        if request.connector_alone:
            self._require_here(name)
            state = await self._work.restart(name, Force(connector=True))
            if state in (State.FAILED, State.RESTARTING):
                raise ConnectError(f"Failed to start connector: {name}")
            return None
        self.membership.check_leader()
        if self.store.config(name) is None:
            raise NotFoundError(f"Unknown connector: {name}")
        if self.store.status(name) is None:
            raise NotFoundError(f"Status for connector {name} not found")
        states = self.views.status(name, self._restart_force(request))
        await self.store.put_restart(name, only_failed=request.only_failed, include_tasks=request.include_tasks)
        return states

    async def restart_task(self, task: TaskId) -> None:
        """Restart a task; returns when the previous one has ended and the new one was started."""
        self._require_here(task)
        await self._work.restart(task.connector, Force(tasks=frozenset({task.task})))

    def _require_here(self, work: str | TaskId) -> None:
        """Raise an error, which names the worker that runs a connector or a task, unless it is this one."""
        name = work if isinstance(work, str) else work.connector
        if self.store.config(name) is None:
            raise NotFoundError(f"Unknown connector: {name}")
        if not isinstance(work, str) and not 0 <= work.task < len(self.store.task_configs(name)):
            raise NotFoundError(f"Unknown task: {work}")
        if work in self._work.connectors or work in self._work.tasks:
            return
        self.membership.check_leader()
        raise NotLeaderError(f"Cannot restart {work} because it is assigned to another worker",
                             self.membership.owner_url(work))  # fmt: skip

    async def offsets(self, name: str) -> Mapping[str, Any]:
        """Return the committed offsets."""
        return offsets_json(await self.runtime.offsets(name, self.views.require(name)))

    async def alter_offsets(self, name: str, offsets: Sequence[SourceOffset] | None) -> str:
        """Change the offsets of a stopped connector, None: delete all (KIP-875). Returns the message for the user."""
        self.membership.check_leader()
        await self.store.refresh()
        config = self.views.require(name)
        if self.store.target(name) is not TargetState.STOPPED or self.store.task_configs(name):
            raise BadRequestError(_MODIFY.format(name=name))
        if self._needs_fencing(name, config):
            await self.fence(name)
        if offsets is not None and self.views.type(config) == PluginKind.SINK:
            offsets = sink_offsets.checked(offsets)
        return await self.runtime.alter_offsets(name, config, offsets)

    async def set_logger(self, name: str, level: str) -> None:
        """Have all workers set the level of a logger."""
        await self.store.put_logger(name, level)

    def reports(self, name: str) -> dict[str, Any]:
        """Return the wish of the operator, and the reports of the tasks of a connector that run here."""
        self.views.require(name)
        found = []
        for number in range(len(self.store.task_configs(name))):
            report = self.runtime.report(TaskId(name, number))
            if report is not None:
                found.append({"id": number, **asdict(report)})
        return {"name": name, "target": str(self.store.target(name)), "tasks": found}
