"""The decisions of the herder, without I/O: what to start and stop, and what a restart covers."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.connect.api import Config
from ottla.connect.runtime import State, TargetState

_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")


@dataclass(frozen=True)
class Wanted:
    """A connector as the store has it."""

    config: Config
    target: TargetState
    tasks: int
    generation: int


@dataclass(frozen=True)
class RunningTask:
    """A task that this worker has started."""

    generation: int
    target: TargetState


@dataclass
class Running:
    """The parts of one connector that this worker has started."""

    config: Config | None = None
    """The configuration of the instance; None: there is no instance here."""
    target: TargetState = TargetState.STARTED
    tasks: dict[int, RunningTask] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the connector runs here."""
        return self.config is None and not self.tasks


@dataclass(frozen=True)
class Force:
    """Parts to start again although nothing has changed."""

    connector: bool = False
    tasks: frozenset[int] = frozenset()

    def plus(self, other: Force) -> Force:
        """Return both requests as one."""
        return Force(self.connector or other.connector, self.tasks | other.tasks)


@dataclass(frozen=True)
class Plan:
    """The steps of one round, in this order."""

    stop_tasks: tuple[int, ...] = ()
    stop_connector: bool = False
    start_connector: bool = False
    start_tasks: tuple[int, ...] = ()
    ask_tasks: bool = False
    """Whether the connector has to be asked for its task configurations."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self == Plan()


def plan(
    wanted: Wanted | None, running: Running, *, has_connector: bool, my_tasks: Collection[int], force: Force = Force()
) -> Plan:  # fmt: skip
    """Compare the wanted work of this worker with the running work. None: the connector was deleted.

    A task runs with the generation of its configuration: another generation means stop and start. A connector that is
    started, configured or resumed is asked for its tasks; one that is paused or stopped is not.
    """
    if wanted is None:
        return Plan(tuple(sorted(running.tasks)), running.config is not None)
    runs = running.config is not None
    restart = has_connector and runs and (force.connector or running.config != wanted.config)
    stop_connector = runs and (not has_connector or restart)
    start_connector = has_connector and (not runs or restart or running.target is not wanted.target)
    due = set() if wanted.target is TargetState.STOPPED else {each for each in my_tasks if each < wanted.tasks}
    stop_tasks = {
        number
        for number, task in running.tasks.items()
        if number not in due or task.generation != wanted.generation or number in force.tasks
    }
    start_tasks = {
        number
        for number in due
        if number in stop_tasks or number not in running.tasks or running.tasks[number].target is not wanted.target
    }
    return Plan(
        tuple(sorted(stop_tasks)),
        stop_connector,
        start_connector,
        tuple(sorted(start_tasks)),
        start_connector and wanted.target is TargetState.STARTED,
    )


@dataclass(frozen=True)
class RestartRequest:
    """A request to restart a connector and its tasks (KIP-745)."""

    connector: str
    only_failed: bool = False
    include_tasks: bool = False

    @property
    def connector_alone(self) -> bool:
        """Whether this is the restart of Kafka Connect before KIP-745: the instance, whatever its state."""
        return not self.only_failed and not self.include_tasks


def restarted(request: RestartRequest, connector: State | None, tasks: Mapping[int, State]) -> Force:
    """Return what a restart covers, by the last known states."""
    chosen = frozenset(
        number
        for number, state in tasks.items()
        if request.include_tasks and (not request.only_failed or state is State.FAILED)
    )
    return Force(connector is not None and (not request.only_failed or connector is State.FAILED), chosen)


def needs_task_write(
    new: Sequence[Config], old: Sequence[Config], config: Config | None, applied: Config | None
) -> bool:
    """Whether task configurations have to be written: they changed, or the connector's configuration did."""
    return [dict(each) for each in new] != [dict(each) for each in old] or config != applied


def has_variable(text: str | None) -> bool:
    """Whether a value refers to a configuration provider: `${file:/path:key}`."""
    return text is not None and _VARIABLE.search(text) is not None


def with_variables(raw: Config, configs: Sequence[Config]) -> list[dict[str, str]]:
    """Return task configurations in which the variables of the connector's configuration stay variables.

    Tasks are configured from resolved values; no secret may be written to the topic of configurations.
    """
    hidden = {name: value for name, value in raw.items() if has_variable(value)}
    return [{name: hidden.get(name, value) for name, value in each.items()} for each in configs]


def patched(config: Config, patch: Mapping[str, str | None]) -> dict[str, str]:
    """Return a configuration with changes; None removes a setting (KIP-477)."""
    merged: dict[str, str | None] = {**config, **patch}
    return {name: value for name, value in merged.items() if value is not None}


def too_many_tasks(name: str, count: int, most: int) -> str:
    """Return Kafka's message for a connector with more tasks than tasks.max."""
    return (
        f"The connector {name} has generated {count} tasks, which is greater than {most}, the maximum number of tasks "
        "it is configured to create. This behaviour should be considered a bug and is disallowed. If necessary, it can "
        "be permitted by reconfiguring the connector with 'tasks.max.enforce' set to false; however, this option will "
        "be removed in a future release of Kafka Connect."
    )
