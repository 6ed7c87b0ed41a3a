"""The offset of a source's query, written to the topic of source offsets, where the REST API reads it.

The checkpoint decides where a query goes on. The mirrored offset tells operators, and tells a worker that does not see
the checkpoint that there is one: a query without it would read, and write, everything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.producer.producer import Producer
from ottla.connect.cluster.offset_records import value
from ottla.connect.errors import ConnectError
from ottla.connect.worker.environment import TaskEnvironment

_PARTITION: Final = {"source": "spark"}
_WAIT_S: Final = 30.0
_CLOSE_S: Final = 5.0


class Mirror:
    """The offset of one connector. `read` before `write`."""

    def __init__(self, environment: TaskEnvironment) -> None:
        topic = environment.connector.get("offsets.storage.topic") or environment.worker.offsets_topic
        self._environment = environment
        self._store = environment.stores.of(environment.clients, topic)
        self._producer: Producer[Any, Any] | None = None

    def read(self) -> Mapping[str, Any] | None:
        """Return the last offset. Raises ClientError, RetriableError."""
        self._store.refresh()
        return self._store.get(self._environment.task.connector, _PARTITION)

    def write(self, offset: Mapping[str, Any]) -> None:
        """Write an offset, and wait until it is durable. Raises ClientError."""
        if self._producer is None:
            self._producer = self._environment.clients.producer(client_id=f"connector-offsets-{self._environment.task}")
        key = self._store.key(self._environment.task.connector, _PARTITION)
        self._producer.send(self._store.topic, value(offset), key).result(_WAIT_S)

    def check(self, *, has_checkpoint: bool, checkpoint: str) -> None:
        """Raise ConnectError if the query has run, and its checkpoint is not here."""
        if not has_checkpoint and self.read() is not None:
            raise ConnectError(
                f"The query has run, and its checkpoint {checkpoint} does not exist here: it would write all records "
                "again. Restore the checkpoint, use a directory that all workers see, or reset the offsets of the "
                "connector to start from the beginning"
            )

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._producer.close(_CLOSE_S)
