"""Errors and timeouts within COPY and the replication stream of a real server."""

from __future__ import annotations

import threading
import time

import pytest

from ottla.connect.connectors.postgres.copying import copy_blocks, rows_of
from ottla.connect.connectors.postgres.replication import Replication
from ottla.connect.connectors.postgres.session import connect
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.errors import ConnectError, RetriableError
from tests.connect.postgres.driver import Database
from tests.deadlines import join


def copied(database: Database, query: str) -> int:
    """Return how many rows of a query arrive."""
    connection = connect(Options.of(database.config()))
    try:
        return sum(len(rows_of(block)) for block in copy_blocks(connection, query))
    finally:
        connection.close()


def test_query_that_fails_after_some_rows_is_an_error(database: Database) -> None:
    assert copied(database, "select g from generate_series(1, 5000) g") == 5000
    with pytest.raises(ConnectError, match="division by zero"):
        copied(database, "select 1 / (g - 4000) from generate_series(1, 5000) g")


def test_query_that_is_refused_is_an_error_that_does_not_pass(database: Database) -> None:
    with pytest.raises(ConnectError, match="does not exist") as found:
        copied(database, "select * from no_such_table")
    assert not isinstance(found.value, RetriableError)


def test_keepalive_of_the_server_is_answered(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer the server ends the stream."""
    monkeypatch.setattr("ottla.connect.connectors.postgres.task.ASK_EVERY_S", 600.0)
    database.sql("create table t (id int primary key)")
    database.sql(f"alter database \"{database.name}\" set wal_sender_timeout = '1s'")
    capture = database.capture(snapshot_mode="no_data", status_update_interval_ms="600000")
    end = time.monotonic() + 3
    capture.until(lambda: time.monotonic() > end)
    database.sql("insert into t values (1)")
    capture.take(1)


def test_slot_that_its_previous_reader_still_uses_is_taken_over(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = database.capture(snapshot_mode="no_data")
    capture.poll()
    capture.stop()
    database.wait_for_free_slot()
    options = Options.of(capture.config)
    first = Replication(options, 0)
    timer = threading.Timer(0.5, first.close)
    timer.start()
    try:
        Replication(options, 0).close()
    finally:
        join(timer, "the timer")
