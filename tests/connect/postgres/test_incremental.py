"""Chunks of an incremental snapshot against changes at the worst moment."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.connect.capturing import Capture
from tests.connect.postgres.driver import Database

SIGNAL = "insert into signal values ('1', 'execute-snapshot', '{\"data-collections\": [\"public.t\"]}')"


def after_the_read(capture: Capture, change: Callable[[], None]) -> None:
    """Run a snapshot; make a change right after its first chunk was read, and let the stream bring it at once."""
    chunks = capture.task._chunks
    assert chunks is not None
    read, reads = chunks._read, 0

    def read_then_change() -> None:
        nonlocal reads
        read()
        reads += 1
        if reads == 1:
            change()
            time.sleep(0.3)

    chunks._read = read_then_change  # type: ignore[method-assign]
    capture.until(lambda: reads > 1 and not chunks.active)


def test_newer_change_drops_the_row_of_the_chunk(database: Database) -> None:
    """A row changes after its chunk was read, before the chunk is emitted."""
    database.sql("create table signal (id text primary key, type text, data text)")
    database.sql("create table t (id int primary key, n int); insert into t values (1, 0), (2, 0)")
    capture = database.capture(snapshot_mode="no_data", signal_data_collection="public.signal")
    database.sql(SIGNAL)
    after_the_read(capture, lambda: database.sql("update t set n = 1 where id = 1"))
    rows = [(each.value["op"], each.value["after"]["id"], each.value["after"]["n"]) for each in capture.kafka.records]
    assert rows == [("u", 1, 1), ("r", 2, 0)]


def test_deleted_row_of_the_chunk_does_not_return(database: Database) -> None:
    database.sql("create table signal (id text primary key, type text, data text)")
    database.sql("create table t (id int primary key, n int); insert into t values (1, 0), (2, 0)")
    capture = database.capture(snapshot_mode="no_data", signal_data_collection="public.signal")
    database.sql(SIGNAL)
    after_the_read(capture, lambda: database.sql("delete from t where id = 1"))
    operations = [each.value["op"] if each.value else "tombstone" for each in capture.kafka.records]
    assert operations == ["d", "tombstone", "r"]
