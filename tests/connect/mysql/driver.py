"""A database of a test, and the tasks that capture it."""

from __future__ import annotations

from typing import Any

from ottla.connect.connectors.mysql.task import MysqlTask
from ottla.connect.worker.transaction_boundaries import RequestedEnds
from tests.connect.capturing import Capture, Kafka
from tests.peers.mariadb import MariaDbServer


class Database:
    """A database of a test."""

    def __init__(self, server: MariaDbServer, name: str) -> None:
        self.server, self.name = server, name
        self.connection = server.connect(name)
        self._captures: list[Capture] = []

    def config(self, **settings: str) -> dict[str, str]:
        return {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": self.server.user,
            **({"database.password": self.server.password} if self.server.password else {}),
            "database.server.id": "77",
            "topic.prefix": "p",
            "database.include.list": self.name,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def capture(self, kafka: Kafka | None = None, requested: RequestedEnds | None = None, **settings: str) -> Capture:
        capture = Capture(MysqlTask(), self.config(**settings), kafka, requested=requested)
        self._captures.append(capture)
        return capture

    def sql(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def close(self) -> None:
        for each in self._captures:
            each.task.stop()
        self.connection.close()
