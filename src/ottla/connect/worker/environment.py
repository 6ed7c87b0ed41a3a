"""The surroundings of one task, as the runtime prepares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.connect.api import Connector
from ottla.connect.runtime import TaskId
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.offset_store import OffsetStores
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.steps import Reached


@dataclass(frozen=True)
class TaskEnvironment:
    """All that a task needs. Variables in its settings are resolved."""

    task: TaskId
    worker: WorkerSettings
    connector_class: type[Connector]
    connector: Mapping[str, str] = field(repr=False)
    """The settings of the connector."""
    config: Mapping[str, str] = field(repr=False)
    """The settings of the task."""
    control: TaskControl
    stores: OffsetStores
    secrets: Secrets
    check_generation: Callable[[], None]
    """Raises ConnectError if a newer generation of the task exists; waits for the event loop."""
    used_topic: Callable[[str], None]
    reached: Reached
    shows: Callable[[bool], None]
    """Reports whether the task is paused (True) or runs. A paused task must not write records any more."""

    @property
    def clients(self) -> Clients:
        """The clients of the connector."""
        return Clients(self.worker, self.connector)
