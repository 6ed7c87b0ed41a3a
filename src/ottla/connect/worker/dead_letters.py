"""The dead letter topic of a sink (KIP-298, KIP-610): the bytes of a record, and headers that say what went wrong."""

from __future__ import annotations

import traceback
from collections import deque
from typing import Any, Final

from ottla.clients.admin.model import NewTopic
from ottla.clients.producer.producer import Delivery, Producer
from ottla.connect.runtime import TaskId
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.task_settings import ErrorSettings
from ottla.connect.worker.tolerance import Failure
from ottla.connect.worker.topics import create_missing

PREFIX: Final = "__connect.errors."
_CLOSE_S: Final = 5.0
_MAX_PENDING: Final = 10_000


class DeadLetters:
    """Writes failed records to a topic. `flush` waits until they are durable, before offsets are committed."""

    def __init__(self, task: TaskId, clients: Clients, settings: ErrorSettings, secrets: Secrets) -> None:
        """Create the topic if it does not exist, with one partition as in stock. Raises ClientError."""
        self._task = task
        self._settings = settings
        self._secrets = secrets
        self._sent: deque[Delivery] = deque()
        topic = settings.dead_letter_topic
        with clients.admin(client_id=f"connector-dlq-adminclient-{task}") as admin:
            create_missing(admin, NewTopic(topic, 1, settings.dead_letter_replicas))
        self._producer: Producer[Any, Any] = clients.producer(client_id=f"connector-dlq-producer-{task}")

    def report(self, failure: Failure) -> None:
        """Send a failed record. Raises the error of an earlier one that could not be delivered."""
        raw = failure.raw
        if raw is None:
            return
        headers = list(raw.headers)
        if self._settings.dead_letter_context:
            headers += self._context(failure)
        timestamp = raw.timestamp if raw.timestamp >= 0 else None
        topic = self._settings.dead_letter_topic
        self._sent.append(self._producer.send(topic, raw.value, raw.key, timestamp_ms=timestamp, headers=headers))
        while self._sent and (self._sent[0].done() or len(self._sent) > _MAX_PENDING):
            self._sent.popleft().result()

    def _context(self, failure: Failure) -> list[tuple[str, bytes | None]]:
        raw, error = failure.raw, failure.error
        assert raw is not None
        stack = "".join(traceback.format_exception(error))
        rows = (
            ("topic", raw.topic),
            ("partition", str(raw.partition)),
            ("offset", str(raw.offset)),
            ("connector.name", self._task.connector),
            ("task.id", str(self._task.task)),
            ("stage", failure.stage.value),
            ("class.name", failure.plugin),
            ("exception.class.name", f"{type(error).__module__}.{type(error).__qualname__}"),
            ("exception.message", self._secrets.hide(str(error))),
            ("exception.stacktrace", self._secrets.hide(stack)),
        )
        return [(f"{PREFIX}{name}", text.encode(errors="replace")) for name, text in rows]

    def flush(self) -> None:
        """Wait until all records are acknowledged. Raises the error of a delivery."""
        while self._sent:
            self._sent[0].result()
            self._sent.popleft()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close(_CLOSE_S)
