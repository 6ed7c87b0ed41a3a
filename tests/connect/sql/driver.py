"""A database of a test, and tasks that are driven by hand."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.connect.api import SinkTaskContext, SourceTaskContext, TopicPartition
from ottla.connect.connectors.sql.sink import SqlSinkTask
from ottla.connect.connectors.sql.source import SqlSourceTask
from ottla.connect.data import Schema
from ottla.connect.records import SinkRecord, SourceRecord

DEADLINE_S = 20.0


class Site:
    """A database, with an own connection in autocommit mode."""

    def __init__(self, kind: str, server: Any, name: str, path: Path) -> None:
        self.kind, self.server, self.name = kind, server, name
        self._path = path / "db.sqlite"
        self.connection: Any = self._connect()
        self._tasks: list[Any] = []

    def _connect(self) -> Any:
        if self.server is None:
            return sqlite3.connect(self._path, isolation_level=None)
        return self.server.connect(self.name)

    @property
    def url(self) -> str:
        if self.server is None:
            return f"jdbc:sqlite:{self._path}"
        scheme = "mariadb" if self.kind == "mysql" else "postgresql"
        return f"jdbc:{scheme}://127.0.0.1:{self.server.port}/{self.name}?user={self.server.user}"

    def sql(self, *statements: str) -> None:
        for each in statements:
            cursor = self.connection.cursor()
            cursor.execute(each)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(statement)
        return [tuple(each) for each in cursor.fetchall()]

    def source(self, offsets: dict[str, Any] | None = None, **settings: str) -> Source:
        config = {"connection.url": self.url, "topic.prefix": "p-", "poll.interval.ms": "0", **_named(settings)}
        task = Source(config, {} if offsets is None else offsets)
        self._tasks.append(task.task)
        return task

    def sink(self, start: int = 0, **settings: str) -> Sink:
        sink = Sink({"connection.url": self.url, **_named(settings)}, start)
        self._tasks.append(sink.task)
        return sink

    def close(self) -> None:
        for each in self._tasks:
            each.stop()
        self.connection.close()


def _named(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


class Source:
    """A source task; `offsets` are durable."""

    def __init__(self, config: Mapping[str, str], offsets: dict[str, Any]) -> None:
        self.records: list[SourceRecord] = []
        self.offsets, self.task = offsets, SqlSourceTask()
        context = SourceTaskContext("c", 0, lambda p: offsets.get(str(p)), lambda: False, lambda _: None)
        self.task.start(context, config)

    def poll(self) -> Sequence[SourceRecord]:
        found = self.task.poll()
        self.records += found
        for each in found:
            if each.source_partition is not None:
                self.offsets[str(each.source_partition)] = each.source_offset
        return found

    def until(self, done: Callable[[], bool]) -> list[SourceRecord]:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"no progress: {len(self.records)} records"
            self.poll()
        return self.records

    def take(self, count: int) -> list[SourceRecord]:
        self.until(lambda: len(self.records) >= count)
        self.poll()
        assert len(self.records) == count
        return self.records


class Sink:
    """A sink task with one partition of topic `t`."""

    def __init__(self, config: Mapping[str, str], start: int) -> None:
        self.next = start
        self.rejected: list[tuple[SinkRecord, Exception]] = []
        self.task = SqlSinkTask()
        self.task.start(
            SinkTaskContext(
                "c", 0, self._seek, lambda *each: self.rejected.append(each), lambda: False, lambda _: None
            ),
            config,
        )
        self.task.open([TopicPartition("t", 0)])

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.next = offsets[TopicPartition("t", 0)]

    def put(self, *rows: tuple[Any, Any], key: Schema | None = None, value: Schema | None = None) -> None:
        """Put records of (key, value)."""
        records = [record(self.next + index, row, key, value) for index, row in enumerate(rows)]
        self.task.put(records)
        self.next += len(rows)


def record(offset: int, row: tuple[Any, Any], key: Schema | None, value: Schema | None) -> SinkRecord:
    """Return a record of topic `t`."""
    schema = None if row[1] is None else value
    return SinkRecord(
        "t", 0, key, row[0], schema, row[1], offset=offset, original_topic="t", original_partition=0,
        original_offset=offset,
    )  # fmt: skip
