"""Reading of tables: exact, parallel, interrupted, and each snapshot mode."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.connect.errors import ConnectError
from tests.connect.capturing import Capture, Kafka, summary
from tests.connect.postgres.driver import Database


def marks(capture: Capture) -> list[str]:
    return [each.value["source"]["snapshot"] for each in capture.kafka.records if each.value]


def table_of(kafka: Kafka, topic: str) -> dict[Any, Any]:
    """Rebuild a table from its topic."""
    rows: dict[Any, Any] = {}
    for each in kafka.records:
        if each.topic != topic:
            continue
        key = tuple(each.key.values())
        if each.value is None or each.value["op"] == "d":
            rows.pop(key, None)
        else:
            rows[key] = tuple(each.value["after"].values())
    return rows


def database_rows(database: Database, table: str) -> dict[Any, Any]:
    return {row[:1]: row for row in database.rows(f"select * from {table}")}


def test_rows_have_debeziums_marks(database: Database) -> None:
    database.sql("create table a (id int primary key); insert into a select generate_series(1, 3)")
    database.sql("create table b (id int primary key); insert into b values (7)")
    capture = database.capture(snapshot_mode="initial_only")
    capture.take(4)
    assert marks(capture) == ["first", "true", "last_in_data_collection", "last"]
    assert summary(capture.kafka.records[0]) == ("r", (1,), (1,))


@pytest.mark.parametrize("threads", ["1", "4"])
def test_snapshot_and_stream_meet_exactly(database: Database, threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change during the snapshot appears once: in the rows, or in the stream."""
    monkeypatch.setattr("ottla.connect.connectors.postgres.snapshots.RANGE_PAGES", 4)
    database.sql(
        "create table t (id int primary key, n int); insert into t select g, 0 from generate_series(1, 5000) g"
    )
    stop = threading.Event()
    changes = []

    def write() -> None:
        with database.server.connect(database.name) as connection:
            for number in range(100_000):
                if stop.is_set():
                    return
                connection.execute("update t set n = n + 1 where id = %s", [number * 37 % 5000 + 1])
                changes.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        capture = database.capture(snapshot_max_threads=threads, max_batch_size="500")
        capture.until(lambda: "last" in marks(capture))
    finally:
        stop.set()
        writer.join()
    expected = database_rows(database, "t")
    capture.until(lambda: table_of(capture.kafka, "p.public.t") == expected)
    seen: dict[int, int] = {}
    for each in capture.kafka.records:
        row = each.value["after"]
        if each.value["op"] == "r":
            assert row["id"] not in seen
        else:
            assert row["n"] == seen[row["id"]] + 1, "a change is repeated or missing"
        seen[row["id"]] = row["n"]


def test_interrupted_snapshot_goes_on_with_the_tables_that_are_missing(database: Database) -> None:
    for name in ("a", "b", "c"):
        database.sql(f"create table {name} (id int primary key, n int)")
        database.sql(f"insert into {name} select g, 0 from generate_series(1, 50) g")
    capture = database.capture(max_batch_size="60")
    capture.until(lambda: len(capture.kafka.records) >= 70)
    kafka = capture.crash()
    database.sql("update a set n = 1 where id = 1; update b set n = 1 where id = 1; update c set n = 1 where id = 1")
    again = database.capture(kafka)
    expected = {name: database_rows(database, name) for name in ("a", "b", "c")}
    again.until(lambda: all(table_of(kafka, f"p.public.{name}") == expected[name] for name in expected))
    again.poll()
    reads = [each for each in kafka.records if each.topic == "p.public.a" and each.value["op"] == "r"]
    assert len(reads) == 50, "a complete table was read twice"
    for name in expected:
        updates = [each for each in kafka.records if each.topic == f"p.public.{name}" and each.value["op"] == "u"]
        assert len(updates) == 1, "the stream repeats what the first snapshot had not seen"


def test_row_that_was_deleted_between_two_attempts_does_not_stay(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t select generate_series(1, 50)")
    capture = database.capture(max_batch_size="10")
    capture.until(lambda: len(capture.kafka.records) >= 10)
    kafka = capture.crash()
    assert kafka.offset is not None
    assert not kafka.offset["snapshot_completed"]
    database.sql("delete from t where id < 10; insert into t values (3)")
    again = database.capture(kafka)
    expected = database_rows(database, "t")
    again.until(lambda: table_of(kafka, "p.public.t") == expected)


def test_attempt_without_an_offset_leaves_no_deleted_row(database: Database) -> None:
    """At least once: records were written, but no offset."""
    database.sql("create table t (id int primary key); insert into t select generate_series(1, 5)")
    capture = database.capture()
    capture.take(5)
    kafka = capture.crash()
    kafka.offset = None
    database.sql("delete from t where id = 1")
    again = database.capture(kafka)
    expected = database_rows(database, "t")
    again.until(lambda: table_of(kafka, "p.public.t") == expected)


def test_crash_right_after_the_snapshot_loses_nothing(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t values (1)")
    capture = database.capture()
    capture.take(1)
    kafka = capture.crash()
    database.sql("insert into t values (2)")
    again = database.capture(kafka)
    again.take(2)
    assert [summary(each)[0] for each in kafka.records] == ["r", "c"]


def test_no_data_streams_only(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t values (1)")
    capture = database.capture(snapshot_mode="no_data")
    database.sql("insert into t values (2)")
    assert summary(capture.take(1)[0]) == ("c", (2,), (2,))


def test_always_reads_at_each_start(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t values (1)")
    first = database.capture(snapshot_mode="always")
    first.take(1)
    second = database.capture(first.crash(), snapshot_mode="always")
    second.take(2)
    assert [summary(each)[0] for each in second.kafka.records] == ["r", "r"]


def test_lost_slot_is_an_error_or_a_new_snapshot(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t values (1)")
    capture = database.capture()
    capture.take(1)
    kafka = capture.crash()
    database.drop_slot()
    database.sql("insert into t values (2)")
    with pytest.raises(ConnectError, match=r"does not exist any more.*snapshot\.mode=when_needed"):
        database.capture(kafka)
    again = database.capture(kafka, snapshot_mode="when_needed")
    again.take(3)
    assert table_of(kafka, "p.public.t") == {(1,): (1,), (2,): (2,)}


def test_slot_ahead_of_the_offset_is_an_error(database: Database) -> None:
    database.sql("create table t (id int primary key); insert into t values (1)")
    capture = database.capture()
    capture.take(1)
    kafka = capture.crash()
    database.sql("insert into t values (2)")
    database.wait_for_free_slot()
    database.sql("select pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", f"slot_{database.name}")
    with pytest.raises(ConnectError, match="ahead of the committed offset"):
        database.capture(kafka)
    database.capture(kafka, offset_mismatch_strategy="trust_slot")
