"""The source offsets of all connectors in one topic, as this process has read them.

One store serves all tasks of the process with the same topic, cluster and user. `refresh` reads to the end of the topic
as it is at that moment. A reader of committed records waits for open transactions of other tasks, as stock's does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.model import NewTopic, OffsetSpec
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.errors import NotAuthorized
from ottla.common.ids import TopicPartition
from ottla.connect.api import SourceOffset
from ottla.connect.cluster.offset_records import OffsetState
from ottla.connect.errors import RetriableError
from ottla.connect.records import Position
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.topics import create_missing

REFRESH_S: Final = 60.0
_POLL_S: Final = 0.2


class OffsetStore:
    """Reads source offsets. May be shared by threads."""

    def __init__(self, clients: Clients, topic: str) -> None:
        self.topic = topic
        self._clients = clients
        self._lock = threading.Lock()
        self._state = OffsetState()
        self._consumer: Consumer[Any, Any] | None = None
        self._admin: Admin | None = None
        self._partitions: list[TopicPartition] = []

    def refresh(self, timeout_s: float = REFRESH_S) -> None:
        """Read to the end. Raises RetriableError after the timeout, and ClientError."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            consumer, admin = self._open()
            found = admin.list_offsets(dict.fromkeys(self._partitions, OffsetSpec.LATEST), timeout_s=timeout_s)
            ends = {tp: each.offset for tp, each in found.items()}
            behind = list(ends)
            while behind := [tp for tp in behind if consumer.position(tp, timeout_s) < ends[tp]]:
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"The source offsets in {behind[0]} could not be read to their end within {timeout_s:g} s: "
                        "a transaction of another task is open"
                    )
                for record in consumer.poll(_POLL_S):
                    self._state.apply(record.key, record.value)

    def _open(self) -> tuple[Consumer[Any, Any], Admin]:
        if self._consumer is not None and self._admin is not None:
            return self._consumer, self._admin
        if self._admin is None:
            self._admin = self._clients.admin()
        self._create(self._admin)
        consumer = self._clients.consumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_poll_records=5_000,
        )
        self._partitions = [TopicPartition(self.topic, each) for each in consumer.partitions_of(self.topic)]
        consumer.assign(self._partitions)
        self._consumer = consumer
        return consumer, self._admin

    def _create(self, admin: Admin) -> None:
        """Create the topic unless it exists. Raises ClientError."""
        worker = self._clients.worker
        settings = {"cleanup.policy": "compact"}
        wanted = NewTopic(self.topic, worker.offsets_partitions, worker.offsets_replication_factor, settings)
        try:
            create_missing(admin, wanted)
        except NotAuthorized:
            if self.topic != worker.offsets_topic:
                raise
            # The worker's own topic: the user of a connector needs only to read and write it.
            with Clients(worker).admin() as own:
                create_missing(own, wanted)

    def get(self, connector: str, partition: Position) -> Position | None:
        """Return the offset of a source partition."""
        with self._lock:
            return self._state.get(connector, partition)

    def all(self, connector: str) -> Sequence[SourceOffset]:
        """Return the offsets of a connector."""
        with self._lock:
            return self._state.all(connector)

    def key(self, connector: str, partition: Position) -> bytes:
        """Return the key of the record of an offset. Raises BadRequestError for values that JSON does not have."""
        with self._lock:
            return self._state.key(connector, partition)

    def close(self) -> None:
        """Close the clients."""
        with self._lock:
            for client in (self._consumer, self._admin):
                if client is not None:
                    client.close()
            self._consumer = self._admin = None


class OffsetStores:
    """The stores of a process, by topic and the settings of their clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[tuple[frozenset[tuple[str, str]], str], OffsetStore] = {}

    def of(self, clients: Clients, topic: str) -> OffsetStore:
        """Return the store of a topic, read with the rights of a connector."""
        key = clients.reader(), topic
        with self._lock:
            if key not in self._stores:
                self._stores[key] = OffsetStore(clients, topic)
            return self._stores[key]

    def close(self) -> None:
        """Close all stores."""
        with self._lock:
            for store in self._stores.values():
                store.close()
            self._stores.clear()
