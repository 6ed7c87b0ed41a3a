"""The server is lost just before each kind of query: the task may start again, and goes on without a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.connect.connectors.postgres.catalog import Catalog
from ottla.connect.connectors.postgres.incremental import IncrementalReader
from ottla.connect.connectors.postgres.replication import Replication
from ottla.connect.connectors.postgres.snapshots import TableReader
from ottla.connect.errors import RetriableError
from tests.connect.capturing import Capture, Kafka
from tests.connect.postgres.driver import Database

Lose = Callable[[Database], None]


def kill(database: Database) -> None:
    """kill -9."""
    database.server.kill()


def terminate(database: Database) -> None:
    """Cut the connections, as a fast shutdown and an administrator do (AdminShutdown)."""
    database.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'ottla%'")


def lose_before(monkeypatch: pytest.MonkeyPatch, place: type, method: str, action: Callable[[], None]) -> list[str]:
    """Run an action once before a method. The list has the name of the method when that has happened."""
    original, happened = getattr(place, method), list[str]()

    def replaced(self: Any, *given: Any, **named: Any) -> Any:
        if not happened:
            happened.append(method)
            action()
        return original(self, *given, **named)

    monkeypatch.setattr(place, method, replaced)
    return happened


def go_on(database: Database, kafka: Kafka) -> Capture:
    """Start the server, if it was killed, and the task, as the worker does after a pause."""
    if not database.server.is_running:
        database.server.start()
        database.connection.close()
        database.connection = database.server.connect(database.name)
    database.wait_for_free_slot()
    return database.capture(kafka, **CHUNKS)


CHUNKS = {"signal_data_collection": "public.signals", "incremental_snapshot_chunk_size": "100"}


@pytest.fixture
def tables(database: Database) -> Database:
    """A table with rows, and a signal table."""
    database.sql("create table t (id int primary key, a text)")
    database.sql("insert into t select g, 'x' from generate_series(1, 5) g")
    database.sql("create table signals (id text primary key, type text, data text)")
    return database


def ask_for_chunks(database: Database) -> None:
    data = '{"data-collections": ["public.t"], "type": "incremental"}'
    database.sql("insert into signals values ('1', 'execute-snapshot', %s)", data)


@pytest.mark.parametrize("lose", [kill, terminate])
@pytest.mark.parametrize(
    ("place", "method"),
    [
        (Catalog, "table"),  # the stream defines a table
        (Catalog, "types"),  # a table of the stream has a type
        (Catalog, "tables"),  # a signal asks for tables
        (IncrementalReader, "_read"),  # a chunk
        (Replication, "ask"),
        (Replication, "_arrived"),
    ],
)
def test_lost_server_is_an_error_that_passes(
    tables: Database, monkeypatch: pytest.MonkeyPatch, lose: Lose, place: type, method: str
) -> None:
    database = tables
    monkeypatch.setattr("ottla.connect.connectors.postgres.task.ASK_EVERY_S", 0.1)
    capture = database.capture(**CHUNKS)
    capture.take(5)
    happened = lose_before(monkeypatch, place, method, lambda: lose(database))
    database.sql("update t set a = 'y' where id = 1")
    ask_for_chunks(database)
    with pytest.raises(RetriableError):
        capture.until(lambda: False)
    assert happened
    capture.stop()
    capture = go_on(database, capture.kafka)
    database.sql("insert into t values (6, 'z')")
    expected = {row[:1]: row for row in database.rows("select * from t")}
    capture.until(lambda: capture.kafka.table("p.public.t") == expected)
    capture.until(lambda: sum(each.value["op"] == "r" for each in capture.kafka.records) >= 10)


@pytest.mark.parametrize("lose", [kill, terminate])
@pytest.mark.parametrize(
    ("place", "method"), [(Catalog, "tables"), (Catalog, "types"), (TableReader, "_divided"), (Replication, "_start")]
)
def test_lost_server_at_the_start(
    tables: Database, monkeypatch: pytest.MonkeyPatch, lose: Lose, place: type, method: str
) -> None:
    database = tables
    happened = lose_before(monkeypatch, place, method, lambda: lose(database))
    kafka = Kafka()
    with pytest.raises(RetriableError):
        database.capture(kafka, **CHUNKS).until(lambda: False)
    assert happened
    capture = go_on(database, kafka)
    expected = {row[:1]: row for row in database.rows("select * from t")}
    capture.until(lambda: capture.kafka.table("p.public.t") == expected)
