"""The border between the herder, which decides what runs, and the worker, which runs it.

The herder calls a `Runtime` from the event loop; none of its methods waits for another system. The worker calls a
`StatusListener`, from the event loop, when something has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from ottla.connect.api import Config, SourceOffset


class TaskId(NamedTuple):
    """A task of a connector."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class TargetState(StrEnum):
    """The wish of an operator; the texts are from Connect's config topic."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class State(StrEnum):
    """The state of a connector or a task; the texts are from the REST API and from Connect's status topic."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


@dataclass(frozen=True)
class Report:
    """A task's own report, for `ottla connect describe` and `why`. All texts are sentences."""

    waits_for: str = ""
    """The event that a task without progress waits for."""
    tried: int = 0
    """How often the worker has started it again after the last success."""
    next_try_ms: int | None = None
    """When the worker starts it again, in milliseconds since 1970."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Numbers and texts by name: records, lag, the last record."""
    error: str = ""
    """The failure after which the task or an operation is tried again; empty after a success."""


class StatusListener(Protocol):
    """Learns the states of connectors and tasks on this worker. `trace` has the error of a failure, or is empty."""

    async def check_task(self, task: TaskId, generation: int) -> None:
        """Read to the end of the store, and raise ConnectError if the task has another generation or worker by now.

        The worker awaits it on the event loop for each exactly-once source task, after its producer has fenced the
        previous one and before the first `poll`: the round of fencing of newer tasks may have missed this producer,
        which was not there yet (KIP-618).
        """
        ...

    def connector_changed(self, name: str, state: State, trace: str = "") -> None:
        """Learn the state of a connector."""
        ...

    def task_changed(self, task: TaskId, state: State, trace: str = "") -> None:
        """Learn the state of a task. A retriable failure is RUNNING or RESTARTING with a trace."""
        ...

    def tasks_requested(self, name: str) -> None:
        """Learn that a connector wants other task configurations."""
        ...

    def topic_used(self, name: str, topic: str) -> None:
        """Learn that a connector has used a topic since its topics were reset (KIP-558)."""
        ...


class Runtime(Protocol):
    """Runs connectors and tasks of this worker. Settings are complete texts; variables are resolved by the runtime."""

    def start_connector(self, name: str, config: Config, target: TargetState) -> None:
        """Start an instance of a connector, or apply another target state to it."""
        ...

    async def stop_connector(self, name: str) -> None:
        """Stop the instance, and wait until it has ended, at most for task.shutdown.graceful.timeout.ms."""
        ...

    async def task_configs(self, name: str) -> Sequence[Config]:
        """Ask the running instance for its task configurations. Raises ConnectError."""
        ...

    def start_task(self, task: TaskId, connector: Config, config: Config, target: TargetState, generation: int) -> None:
        """Start a task, or apply another target state to it. Tasks of older generations are fenced already."""
        ...

    async def stop_tasks(self, tasks: Sequence[TaskId]) -> None:
        """Stop tasks, and wait until they have ended, at most for task.shutdown.graceful.timeout.ms."""
        ...

    async def fence(self, name: str, config: Config, tasks: int | None) -> None:
        """Fence the transactional producers of older tasks of an exactly-once source (KIP-618). Raises ConnectError.

        None: the number of older tasks is unknown, and the brokers are asked for their transactional ids.
        """
        ...

    async def validate(self, config: Config) -> Mapping[str, Sequence[str]]:
        """Ask the plugin for problems that its definitions do not show: messages by the name of the setting."""
        ...

    async def offsets(self, name: str, config: Config) -> Sequence[SourceOffset]:
        """Read the committed offsets of a connector; offsets of a sink have the form of the REST API (KIP-875)."""
        ...

    async def alter_offsets(self, name: str, config: Config, offsets: Sequence[SourceOffset] | None) -> str:
        """Write offsets of a stopped connector, None: delete all. Returns the message for the user."""
        ...

    def report(self, task: TaskId) -> Report | None:
        """Return what a task of this worker says of itself."""
        ...

    async def close(self) -> None:
        """Stop everything."""
        ...


@dataclass(frozen=True)
class Status:
    """The last known state of a connector or a task."""

    state: State
    worker_id: str
    generation: int
    trace: str = ""
    version: str = ""
    """The version of the plugin, if the worker knows it (KIP-891)."""


class StoreListener(Protocol):
    """Learns from the store, on the event loop, what this worker or another one has written. No method waits."""

    def changed(self, name: str) -> None:
        """Learn that the configuration, the target state or the tasks of a connector changed, or that it was deleted.

        Compare the store and the running work: several changes may come as one.
        """
        ...

    def restart_requested(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        """Learn that a connector should be restarted, as far as it runs here (KIP-745). Not called for old requests."""
        ...

    def logger_changed(self, logger: str, level: str) -> None:
        """Learn that all workers should set the level of a logger (KIP-976). Not called for old requests."""
        ...


class Store(Protocol):
    """Configurations, target states, statuses and used topics: in memory, or in Connect's compacted topics.

    Reads are local, and see the records that were read so far. Writes return when they are durable and read back.
    After each change, also of other workers, the store calls its `StoreListener`.
    """

    async def refresh(self) -> None:
        """Read to the end, as it is now. Raises ConnectError if that takes too long."""
        ...

    def connectors(self) -> Sequence[str]:
        """The names of all connectors, sorted."""
        ...

    def config(self, name: str) -> Config | None:
        """The configuration of a connector."""
        ...

    def target(self, name: str) -> TargetState:
        """The wish of an operator for a connector."""
        ...

    def task_configs(self, name: str) -> Sequence[Config]:
        """The configurations of its tasks, complete or empty."""
        ...

    def applied_config(self, name: str) -> Config | None:
        """The configuration of the connector for which its task configurations were written.

        If it differs from `config`, the tasks must be written again, even with equal configurations.
        """
        ...

    def is_inconsistent(self, name: str) -> bool:
        """Whether the task configurations are incomplete, and must be written again."""
        ...

    def task_generation(self, name: str) -> int:
        """A number that grows with each complete write of task configurations."""
        ...

    def needs_fencing(self, name: str) -> bool:
        """Whether task configurations were written after the last fencing (KIP-618)."""
        ...

    def status(self, name: str) -> Status | None:
        """The state of a connector."""
        ...

    def task_status(self, task: TaskId) -> Status | None:
        """The state of a task."""
        ...

    def topics(self, name: str) -> Sequence[str]:
        """The topics that a connector has used."""
        ...

    async def put_config(self, name: str, config: Config, target: TargetState | None = None) -> None:
        """Write a configuration, with a target state if it is given (KIP-980)."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a connector with all it has here."""
        ...

    async def put_target(self, name: str, target: TargetState) -> None:
        """Write the wish of an operator for a connector."""
        ...

    async def put_task_configs(self, name: str, configs: Sequence[Config]) -> None:
        """Write the configurations of all tasks, so that readers see all or none."""
        ...

    async def put_restart(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        """Ask the workers that run a connector and its tasks to restart them (KIP-745)."""
        ...

    async def put_logger(self, logger: str, level: str) -> None:
        """Ask all workers to set the level of a logger (KIP-976)."""
        ...

    async def put_task_count(self, name: str, count: int) -> None:
        """Write how many transactional producers exist since the last fencing (KIP-618)."""
        ...

    def task_count(self, name: str) -> int | None:
        """How many transactional producers exist since the last fencing."""
        ...

    def put_status(self, name: str, status: Status) -> None:
        """Write the state of a connector, soon; DESTROYED deletes it."""
        ...

    def put_task_status(self, task: TaskId, status: Status) -> None:
        """Write the state of a task, soon; DESTROYED deletes it."""
        ...

    def put_topic(self, name: str, topic: str) -> None:
        """Write that a connector uses a topic, soon."""
        ...

    async def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used."""
        ...


@dataclass(frozen=True)
class Assignment:
    """The part of the work that this worker has since the last rebalance."""

    generation: int
    leader_url: str
    """The address of the leader's REST API; this worker's own address if it leads."""
    is_leader: bool
    connectors: frozenset[str]
    tasks: frozenset[TaskId]


class WorkListener(Protocol):
    """Learns the results of rebalances, on the event loop. The rebalance goes on when the method returns."""

    async def assigned(self, assignment: Assignment) -> None:
        """Learn the work of this worker: start what does not run yet. The store was read up to the assignment."""
        ...

    async def revoked(self, connectors: frozenset[str], tasks: frozenset[TaskId]) -> None:
        """Stop a part of the work, and write its states: another worker starts it after this returns."""
        ...


class Membership(Protocol):
    """The place of this worker among the workers of its group. A standalone worker leads and has everything."""

    @property
    def worker_id(self) -> str:
        """The name of this worker in statuses: HOST:PORT of its REST API."""
        ...

    @property
    def assignment(self) -> Assignment | None:
        """The last assignment; None before the first one, and after the group has removed this worker."""
        ...

    def check_leader(self) -> None:
        """Raise NotLeaderError, with the leader's address, unless this worker leads and may write."""
        ...

    def owner_url(self, work: str | TaskId) -> str | None:
        """The address of the worker that runs a connector or a task, as far as this worker knows: the leader does."""
        ...

    def rejoin(self, reason: str) -> None:
        """Have the work divided again soon: a connector or its number of tasks has changed."""
        ...

    async def ask_leader(self, method: str, path: str, body: object = None) -> None:
        """Send a signed internal request to the leader (KIP-507). Raises ConnectError with the leader's message."""
        ...

    def check_signature(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Raise SignatureError unless a worker of this group signed the request. Header names are lowercase."""
        ...
