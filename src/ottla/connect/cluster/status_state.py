"""The topic of statuses as a state: the last state of connectors and tasks, and the topics that they have used.

Workers write here without a leader, so that records of two workers can arrive in either order after a rebalance. Two
rules decide which status wins: a reader ignores UNASSIGNED from the worker that had a task before, if the state is
RUNNING of the same or a later generation; a writer of FAILED or UNASSIGNED does not replace a state that another worker
wrote in a later generation (`may_replace`). No I/O. Source: KafkaStatusBackingStore of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.connect.cluster import keys, values
from ottla.connect.cluster.values import TopicUse
from ottla.connect.runtime import State, Status, TaskId

_CAREFUL: Final = (State.FAILED, State.UNASSIGNED)


class StatusState:
    """All statuses as the topic has them so far."""

    def __init__(self) -> None:
        self._connectors: dict[str, Status] = {}
        self._tasks: dict[str, dict[int, Status]] = {}
        self._topics: dict[str, dict[str, TopicUse]] = {}

    # -- reading ------------------------------------------------------------------------------------------------

    def connectors(self) -> set[str]:
        """The connectors with any status or topic, also deleted ones."""
        return {*self._connectors, *self._tasks, *self._topics}

    def status(self, name: str) -> Status | None:
        """The state of a connector."""
        return self._connectors.get(name)

    def task_status(self, task: TaskId) -> Status | None:
        """The state of a task."""
        return self._tasks.get(task.connector, {}).get(task.task)

    def tasks(self, name: str) -> Sequence[TaskId]:
        """The tasks of a connector that have a state, also deleted ones."""
        return [TaskId(name, number) for number in sorted(self._tasks.get(name, {}))]

    def topics(self, name: str) -> Mapping[str, TopicUse]:
        """The topics that a connector has used."""
        return self._topics.get(name, {})

    # -- applying -----------------------------------------------------------------------------------------------

    def apply(self, key: bytes | None, value: bytes | None) -> bool:
        """Apply a record. False: it cannot be read, and has no effect."""
        try:
            text = (key or b"").decode()
        except UnicodeDecodeError:
            return False
        fields = None if value is None else values.parsed(value)
        if value is not None and fields is None:
            return False
        if text.startswith(keys.STATUS_CONNECTOR):
            return self._connector(text.removeprefix(keys.STATUS_CONNECTOR), fields)
        if text.startswith(keys.STATUS_TASK):
            task = keys.task_of(text, keys.STATUS_TASK)
            return task is not None and self._task(task, fields)
        if text.startswith(keys.STATUS_TOPIC):
            use = keys.topic_and_connector(text)
            return use is not None and self._topic(*use, fields)
        return False

    def _connector(self, name: str, fields: Mapping[str, object] | None) -> bool:
        if fields is None:
            self._connectors.pop(name, None)
            self._tasks.pop(name, None)
            return True
        status = values.read_status(fields)
        if status is not None and name:
            self._connectors[name] = status
        return status is not None and bool(name)

    def _task(self, task: TaskId, fields: Mapping[str, object] | None) -> bool:
        if fields is None:
            self._tasks.get(task.connector, {}).pop(task.task, None)
            return True
        status = values.read_status(fields)
        if status is None:
            return False
        if not is_outdated(status, self.task_status(task)):
            self._tasks.setdefault(task.connector, {})[task.task] = status
        return True

    def _topic(self, topic: str, connector: str, fields: Mapping[str, object] | None) -> bool:
        if fields is None:
            self._topics.get(connector, {}).pop(topic, None)
            return True
        use = values.read_topic_use(fields)
        if use is None:
            return False
        self._topics.setdefault(connector, {})[topic] = use
        return True


def is_outdated(status: Status, known: Status | None) -> bool:
    """Whether a reader ignores a status: the task runs elsewhere, which its previous worker had not read yet."""
    return (
        status.state is State.UNASSIGNED
        and known is not None
        and known.state is State.RUNNING
        and known.generation >= status.generation
    )


def may_replace(known: Status | None, status: Status) -> bool:
    """Whether a worker writes a status. The previous worker of a task must not hide the state of the new worker."""
    return status.state not in _CAREFUL or is_newest(known, status)


def is_newest(known: Status | None, status: Status) -> bool:
    """Whether no other worker has written a status of a later generation."""
    return known is None or known.worker_id == status.worker_id or known.generation <= status.generation
