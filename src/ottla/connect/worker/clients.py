"""Creates the clients of connectors and of the worker itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.options import COMMON_OPTIONS
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.connect.worker.client_settings import ADMIN, CONSUMER, PRODUCER, client_settings
from ottla.connect.worker.settings import WorkerSettings


@dataclass(frozen=True)
class Clients:
    """The clients of one connector; without a connector, of the worker."""

    worker: WorkerSettings
    connector: Mapping[str, str] = field(default_factory=dict, repr=False)

    def producer(self, **needed: object) -> Producer[bytes, bytes]:
        """Return a new producer. Raises ConfigurationError."""
        return Producer(self._settings(PRODUCER, needed))

    def consumer(self, **needed: object) -> Consumer[bytes, bytes]:
        """Return a new consumer. Raises ConfigurationError."""
        return Consumer(self._settings(CONSUMER, needed))

    def admin(self, **needed: object) -> Admin:
        """Return a new admin client. Raises ConfigurationError."""
        return Admin(self._settings(ADMIN, needed))

    def reader(self) -> frozenset[tuple[str, str]]:
        """Return all settings with which this connector reads: equal ones can share a consumer and an admin client."""
        of_clients = {CONSUMER: self._settings(CONSUMER, {}), ADMIN: self._settings(ADMIN, {})}
        return frozenset(
            (f"{client}.{name}", str(value)) for client, each in of_clients.items() for name, value in each.items()
        )

    def transaction_timeout_ms(self, default_ms: int) -> int:
        """Return the timeout of the transactions of a producer. Raises ValueError if it is not a number."""
        return int(str(self._settings(PRODUCER, {"transaction_timeout_ms": default_ms})["transaction.timeout.ms"]))

    def _settings(self, client: str, needed: Mapping[str, object]) -> dict[str, object]:
        options: Any = {PRODUCER: PRODUCER_OPTIONS, CONSUMER: CONSUMER_OPTIONS, ADMIN: COMMON_OPTIONS}[client]
        dotted = {name.replace("_", "."): value for name, value in needed.items()}
        return client_settings(self.worker, self.connector, client, dotted, options)
