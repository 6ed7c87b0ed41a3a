"""A database of a test, and the tasks that capture it."""

from __future__ import annotations

import time
from typing import Any

from ottla.connect.connectors.postgres.task import PostgresTask
from ottla.connect.worker.transaction_boundaries import RequestedEnds
from tests.connect.capturing import DEADLINE_S, Capture, Kafka
from tests.peers.postgres import PostgresServer


class Database:
    """A database of a test."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name
        self.connection = server.connect(name)
        self._captures: list[Capture] = []

    def config(self, **settings: str) -> dict[str, str]:
        """Return a configuration; settings have underscores for dots."""
        return {
            "connector.class": "postgres",
            "database.hostname": self.server.host,
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            "database.password": "secret",
            "database.dbname": self.name,
            "topic.prefix": "p",
            "slot.name": f"slot_{self.name}",
            "publication.name": f"publication_{self.name}",
            "poll.interval.ms": "50",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def capture(
        self,
        kafka: Kafka | None = None,
        converters: tuple[object, object] | None = None,
        requested: RequestedEnds | None = None,
        **settings: str,
    ) -> Capture:
        """Start a task; it is stopped at the end of the test."""
        capture = Capture(PostgresTask(), self.config(**settings), kafka, converters, requested)
        self._captures.append(capture)
        return capture

    def sql(self, text: str, *values: object) -> None:
        """Run a statement, or several without values."""
        self.connection.execute(text, values or None)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        found: list[tuple[Any, ...]] = self.connection.execute(text).fetchall()
        return found

    def slot(self) -> tuple[Any, ...] | None:
        """Return confirmed position and activity of the slot."""
        found: tuple[Any, ...] | None = self.connection.execute(
            "select confirmed_flush_lsn, active from pg_replication_slots where slot_name = %s", [f"slot_{self.name}"]
        ).fetchone()
        return found

    def close(self) -> None:
        """Stop all tasks, and drop the slot: a slot that stays would hold the log of the next tests."""
        for each in self._captures:
            each.stop()
        self.drop_slot()
        self.connection.close()

    def wait_for_free_slot(self) -> None:
        """Wait until the server has noticed that the reader of the slot has disconnected."""
        deadline = time.monotonic() + DEADLINE_S
        while (slot := self.slot()) is not None and slot[1] and time.monotonic() < deadline:
            time.sleep(0.02)

    def drop_slot(self) -> None:
        """Drop the slot, when its reader has disconnected."""
        deadline = time.monotonic() + DEADLINE_S
        while self.slot() is not None and time.monotonic() < deadline:
            self.connection.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
                "where slot_name = %s and not active",
                [f"slot_{self.name}"],
            )
            time.sleep(0.02)
