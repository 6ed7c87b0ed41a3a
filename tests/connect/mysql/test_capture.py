"""Changes of a real MariaDB server: snapshots, transactions in parts, definitions, restarts, purged logs."""

from __future__ import annotations

import os
import random
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.connectors.mysql import stream
from ottla.connect.connectors.mysql.connector import MysqlConnector
from ottla.connect.connectors.mysql.snapshot import Snapshot
from ottla.connect.connectors.mysql.stream import Stream
from ottla.connect.connectors.mysql.task import MysqlTask
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.worker.transaction_boundaries import RequestedEnds
from tests.connect.capturing import Capture, assert_transactions_are_whole, numbers, summary
from tests.connect.mysql.driver import Database


def rows_of(database: Database, table: str) -> dict[Any, Any]:
    return {row[:1]: row for row in database.rows(f"select * from {table}")}


def test_snapshot_then_changes_with_debeziums_events(database: Database) -> None:
    database.sql("create table t (id int primary key, a varchar(20))", "insert into t values (1, 'x'), (2, null)")
    capture = database.capture()
    capture.take(2)
    database.sql("insert into t values (3, 'z')", "update t set a = 'y' where id = 1", "delete from t where id = 2")
    records = capture.take(6)
    assert [summary(each) for each in records] == [
        ("r", (1,), (1, "x")), ("r", (2,), (2, None)), ("c", (3,), (3, "z")), ("u", (1,), (1, "y")),
        ("d", (2,), (2, None)), ("tombstone", (2,)),
    ]  # fmt: skip
    assert records[3].value["before"] == {"id": 1, "a": "x"}
    assert [each.value["source"]["snapshot"] for each in records[:3]] == ["first", "last", "false"]
    source = records[2].value["source"]
    assert (source["connector"], source["db"], source["table"], source["server_id"]) == (
        "mariadb",
        database.name,
        "t",
        1,
    )
    assert source["gtid"].startswith("0-1-")
    assert records[0].topic == f"p.{database.name}.t"
    assert records[0].value_schema is records[2].value_schema, "catalog and log give one schema"


@pytest.mark.parametrize("lock", ["minimal", "none"])
def test_snapshot_and_stream_meet_exactly(database: Database, lock: str) -> None:
    database.sql("create table t (id int primary key, n int)")
    database.sql("insert into t select seq, 0 from seq_1_to_2000")
    stop = threading.Event()

    def write() -> None:
        with database.server.connect(database.name) as connection, connection.cursor() as cursor:
            for number in range(20_000):
                if stop.is_set():
                    return
                cursor.execute("update t set n = n + 1 where id = %s", [number * 37 % 2000 + 1])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        capture = database.capture(snapshot_locking_mode=lock, max_batch_size="300")
        capture.until(lambda: len(capture.kafka.records) >= 2200)
    finally:
        stop.set()
        writer.join()
    expected = rows_of(database, "t")
    capture.until(lambda: capture.kafka.table(f"p.{database.name}.t") == expected)
    seen: dict[int, int] = {}
    for each in capture.kafka.records:
        row = each.value["after"]
        if each.value["op"] == "u":
            assert row["n"] == seen[row["id"]] + 1, "a change is repeated or missing"
        seen[row["id"]] = row["n"]


@pytest.mark.parametrize("lock", ["minimal", "none"])
def test_snapshot_has_the_rows_of_its_position(database: Database, monkeypatch: pytest.MonkeyPatch, lock: str) -> None:
    """A change after the position and before the first row is in the stream alone."""
    database.sql("create table t (id int primary key, n int)", "insert into t values (1, 0)")
    rows = Snapshot._all_rows

    def after_a_change(snapshot: Snapshot) -> Any:
        database.sql("update t set n = 1")
        return rows(snapshot)

    monkeypatch.setattr(Snapshot, "_all_rows", after_a_change)
    capture = database.capture(snapshot_locking_mode=lock)
    assert [summary(each) for each in capture.take(2)] == [("r", (1,), (1, 0)), ("u", (1,), (1, 1))]


def test_transaction_goes_on_at_its_row_after_a_crash(database: Database) -> None:
    database.sql("create table t (id int primary key, a varchar(4000))")
    capture = database.capture(snapshot_mode="no_data", max_batch_size="1")
    values = ", ".join(f"({number}, repeat('x', 3000))" for number in range(1, 21))
    database.sql("begin", f"insert into t values {values}", "insert into t values (21, '')", "commit")
    database.sql("insert into t values (22, '')")
    partial, kafka = 0, capture.kafka
    # Each crash comes after a record: without an offset a task begins at the end of the log.
    while len(kafka.records) < 22:
        count = len(kafka.records)
        capture.until(lambda count=count: len(kafka.records) > count)  # type: ignore[misc]
        capture.crash()
        partial += "txn_events" in (kafka.offset or {})
        capture = database.capture(kafka, snapshot_mode="no_data", max_batch_size="1")
    assert [each.value["after"]["id"] for each in kafka.records] == list(range(1, 23))
    assert partial, "no crash was within the transaction"


@pytest.mark.parametrize("batch", [1, 10, 13])
def test_transaction_of_the_server_is_committed_as_a_whole(database: Database, batch: int) -> None:
    """`transaction.boundary=connector`, with batches that end within, at the end of, and after a transaction."""
    database.sql("create table t (id int primary key)", "insert into t values (0)")
    given = {"max_batch_size": str(batch)}
    capture = database.capture(requested=RequestedEnds(), **given)
    capture.until(lambda: numbers(capture.kafka.records) == [0])
    transactions = [list(range(1, 26)), [26], [27, 28], list(range(29, 40))]
    for each in transactions:
        rows = [f"insert into t values ({number})" for number in each]
        database.sql("begin", *rows, "commit")
    kafka = capture.kafka
    for polls in range(2, 100, 7):
        for _ in range(polls):
            capture.poll()
            assert_transactions_are_whole(kafka, [[0], *transactions])
        if numbers(kafka.records) == list(range(40)):
            break
        capture.crash()
        capture = database.capture(kafka, requested=RequestedEnds(), **given)
    assert numbers(kafka.records) == list(range(40))


def test_offset_of_each_row_goes_on_after_it(database: Database) -> None:
    """Without exactly once a worker may commit any record's offset: the next record is the next row."""
    database.sql("create table t (id int primary key)")
    capture = database.capture(snapshot_mode="no_data")
    database.sql("insert into t values (1), (2), (3)", "update t set id = 9 where id = 2", "insert into t values (4)")
    records = capture.take(7)
    capture.crash()
    for index in (0, 1, 2, 5):
        again = database.capture(snapshot_mode="no_data")
        again.task.stop()
        again.kafka.offset = records[index].source_offset
        rest = Capture(MysqlTask(), database.config(snapshot_mode="no_data"), again.kafka)
        rest.until(lambda rest=rest, index=index: len(rest.kafka.records) >= 6 - index)  # type: ignore[misc]
        rest.task.stop()
        assert [summary(each) for each in rest.kafka.records] == [summary(each) for each in records[index + 1 :]]


def test_update_of_the_key_is_a_delete_and_a_create(database: Database) -> None:
    database.sql("create table t (id int primary key, a text)", "insert into t values (1, 'x')")
    capture = database.capture(snapshot_mode="no_data")
    database.sql("update t set id = 2")
    records = capture.take(3)
    assert [summary(each)[:2] for each in records] == [("d", (1,)), ("tombstone", (1,)), ("c", (2,))]
    assert records[0].headers[0].key == "__debezium.newkey"
    assert records[2].headers[0].value == {"id": 1}


def test_rows_before_and_after_a_new_definition(database: Database) -> None:
    """Table maps describe each row as it was, although the table has changed before the log is read."""
    database.sql("create table t (id int primary key, a varchar(10))")
    capture = database.capture(snapshot_mode="no_data")
    database.sql(
        "insert into t values (1, 'x')", "alter table t add column n int not null default 7 first",
        "insert into t values (5, 2, 'y')", "alter table t drop column a", "insert into t values (6, 3)",
        "drop table t",
    )  # fmt: skip
    assert [each.value["after"] for each in capture.take(3)] == [
        {"id": 1, "a": "x"}, {"n": 5, "id": 2, "a": "y"}, {"n": 6, "id": 3},
    ]  # fmt: skip


COLUMNS = (
    "id int unsigned primary key, t tinyint, ub bigint unsigned, d decimal(10,2), f float, g double, b1 bit(1), "
    "b9 bit(9), c char(5), v varchar(20), x text, bin binary(4), vb varbinary(5), bl blob, e enum('a','b''c'), "
    "s set('p','q','r'), y year, dd date, tt time(3), dt datetime, dt6 datetime(6), ts timestamp(3) null"
)
VALUES = (
    "(%d, -5, 18446744073709551615, -12.50, 1.1, 2.5, b'1', b'100000001', 'ab', 'ü', 'text', x'0100', x'00ff', "
    "x'ff00', 'b''c', 'r,p', 2024, '2024-02-29', '-01:02:03.500', '2024-02-29 10:11:12', "
    "'2024-02-29 10:11:12.123456', '2024-02-29 10:11:12.120')"
)


def test_types_are_the_same_in_snapshot_and_stream(database: Database) -> None:
    database.sql(f"create table t ({COLUMNS})", f"insert into t values {VALUES % 1}", "insert into t (id) values (2)")
    capture = database.capture()
    capture.take(2)
    database.sql(f"insert into t values {VALUES % 1}".replace("(1,", "(3,"), "insert into t (id, s) values (4, '')")
    read, nulls, streamed, empty = (each.value["after"] for each in capture.take(4))
    assert read == {
        "id": 1, "t": -5, "ub": -1, "d": Decimal("-12.50"), "f": pytest.approx(1.1), "g": 2.5, "b1": True,
        "b9": b"\x01\x01", "c": "ab", "v": "ü", "x": "text", "bin": b"\x01\0\0\0", "vb": b"\0\xff", "bl": b"\xff\0",
        "e": "b'c", "s": "p,r", "y": 2024, "dd": 19782, "tt": -3723500000, "dt": 1709201472000,
        "dt6": 1709201472123456, "ts": "2024-02-29T10:11:12.120Z",
    }  # fmt: skip
    assert streamed == {**read, "id": 3}
    assert set(nulls.values()) == {2, None}
    assert empty["s"] == ""
    first, third = capture.kafka.records[0], capture.kafka.records[2]
    assert first.value_schema is third.value_schema


def test_table_equals_its_topic_after_kills_of_task_and_server(database: Database) -> None:
    """A random workload; the task crashes after any batch, the server is killed in the middle."""
    chance = random.Random(5)
    database.sql("create table t (id int primary key, n int, a varchar(200))")
    database.sql("insert into t select seq, 0, 'x' from seq_1_to_50")
    capture = database.capture(max_batch_size="7")
    capture.take(50)  # an interrupted snapshot repeats changes that its second attempt has read
    for step in range(40):
        database.sql("begin")
        for _ in range(chance.randrange(1, 12)):
            number = chance.randrange(1, 120)
            kind = chance.randrange(4)
            if kind == 0:
                database.sql(f"delete from t where id = {number}")
            elif kind == 1:
                database.sql(f"update ignore t set id = id + 200 where id = {number}")
            else:
                database.sql(f"insert into t values ({number}, 1, 'y') on duplicate key update n = n + 1")
        database.sql("rollback" if chance.randrange(5) == 0 else "commit")
        if step == 20:
            database.server.kill()
            with pytest.raises(RetriableError):
                capture.until(lambda: False)
            database.server.start()
            database.connection = database.server.connect(database.name)
            capture = database.capture(capture.crash(), max_batch_size="7")
        elif chance.randrange(3):
            capture.poll()
        if chance.randrange(4) == 0:
            capture = database.capture(capture.crash(), max_batch_size="7")
    expected, topic = rows_of(database, "t"), f"p.{database.name}.t"
    capture.until(lambda: capture.kafka.table(topic) == expected)
    state: dict[Any, Any] = {}
    for each in capture.kafka.records:  # each change fits its predecessor: none is repeated, none is missing
        key = tuple(each.key.values())
        if each.value is None:
            continue
        assert each.value["op"] == "r" or each.value["before"] == state.get(key)
        state[key] = each.value["after"]


def test_purged_log_is_an_error_or_a_new_snapshot(database: Database) -> None:
    database.sql("create table t (id int primary key)", "insert into t values (1)")
    capture = database.capture()
    capture.take(1)
    kafka = capture.crash()
    database.sql("insert into t values (2)", "flush binary logs")
    last = database.rows("show binary logs")[-1][0]
    deadline = time.monotonic() + 10
    while len(database.rows("show binary logs")) > 1 and time.monotonic() < deadline:
        database.sql(f"purge binary logs to '{last}'")
        time.sleep(0.05)
    with pytest.raises(ConnectError, match=r"was purged.*snapshot\.mode=when_needed"):
        database.capture(kafka)
    again = database.capture(kafka, snapshot_mode="when_needed")
    again.take(3)
    assert kafka.table(f"p.{database.name}.t") == {(1,): (1,), (2,): (2,)}


@pytest.mark.parametrize("change", ["drop table u", "alter table u drop column a"])
def test_table_that_changes_while_the_tables_are_read(database: Database, change: str) -> None:
    """The snapshot begins again with the new definitions."""
    database.sql("create table t (id int primary key)", "insert into t values (1), (2), (3)")
    database.sql("create table u (id int primary key, a int)", "insert into u values (1, 1)")
    capture = database.capture(max_batch_size="1")
    database.sql(change)
    with pytest.raises(RetriableError):
        capture.until(lambda: False)
    capture = database.capture(capture.crash())
    database.sql("insert into t values (4)")
    capture.until(lambda: capture.kafka.table(f"p.{database.name}.t") == rows_of(database, "t"))


def test_row_that_was_deleted_between_two_attempts_of_a_snapshot_does_not_stay(database: Database) -> None:
    database.sql("create table t (id int primary key)", "insert into t select seq from seq_1_to_10")
    capture = database.capture(max_batch_size="4")
    (mark,) = capture.poll()
    assert (mark.topic, mark.source_offset["snapshot_completed"]) == ("", False)  # type: ignore[index]
    capture.poll()
    for number in (1, 2):
        database.sql(f"delete from t where id = {number}")
        capture = database.capture(capture.crash(), max_batch_size="4")
        capture.poll()
    topic = f"p.{database.name}.t"
    capture.until(lambda: capture.kafka.table(topic) == rows_of(database, "t"))
    database.sql("insert into t values (11)")
    capture.until(lambda: capture.kafka.table(topic) == rows_of(database, "t"))


@pytest.mark.parametrize("cut", [31, 45])
def test_transaction_that_a_crash_has_cut_is_not_emitted(database: Database, cut: int) -> None:
    """The server writes a transaction to its log in several steps; the last one is cut here by hand."""
    database.sql("create table t (id int primary key, a text)", "insert into t values (1, 'x')")
    capture = database.capture()
    capture.take(1)
    kafka = capture.crash()
    database.sql("insert into t values (2, 'y')", "insert into t values (3, 'z')")
    file = database.rows("show master status")[0][0]
    database.server.kill()
    with open(database.server.data / file, "r+b") as log:
        log.seek(-cut, os.SEEK_END)
        log.truncate()
    database.server.start()
    database.connection.close()
    database.connection = database.server.connect(database.name)
    database.sql("set sql_log_bin = 0", "delete from t where id = 3", "set sql_log_bin = 1")
    database.sql("insert into t values (4, 'v')")
    capture = database.capture(kafka)
    capture.until(lambda: kafka.table(f"p.{database.name}.t") == rows_of(database, "t"))
    assert [summary(each)[:2] for each in kafka.records] == [("r", (1,)), ("c", (2,)), ("c", (4,))]


def test_partly_emitted_transaction_that_a_crash_has_removed_is_an_error(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = database.capture(snapshot_mode="no_data", max_batch_size="1")
    database.sql("insert into t values (1), (2), (3)")
    capture.until(lambda: bool(capture.kafka.offset))
    kafka = capture.crash()
    assert kafka.offset
    assert kafka.offset["txn_rows"] == 1
    database.server.kill()
    with open(database.server.data / kafka.offset["file"], "r+b") as log:
        log.truncate(kafka.offset["pos"])
    database.server.start()
    database.connection.close()
    database.connection = database.server.connect(database.name)
    database.sql("insert into t values (4)")
    capture = database.capture(kafka)
    with pytest.raises(ConnectError, match=r"ends within the transaction at .*some rows of which are in the topics"):
        capture.until(lambda: len(kafka.records) > 1)


def test_large_transaction_of_a_closed_log_is_emitted_in_parts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The held rows have a size, not just a number; each batch has one row more than its size at most."""
    monkeypatch.setattr(stream, "MOST_HELD_BYTES", 1 << 20)
    database.sql("create table t (id int primary key, a longtext)")
    kafka = database.capture(snapshot_mode="no_data").crash()
    file, pos = database.rows("show master status")[0][:2]
    kafka.offset = {"file": file, "pos": pos}
    database.sql("begin")
    for number in range(40):
        database.sql(f"insert into t values ({number}, repeat('x', 100000))")
    database.sql("delete from t where id < 20", "commit", "flush binary logs")
    held, feed = [], Stream.feed

    def observed(self: Stream, event: Any) -> None:
        feed(self, event)
        held.append(self.held_bytes)

    monkeypatch.setattr(Stream, "feed", observed)
    capture, sizes = database.capture(kafka, max_batch_size="7"), []
    while len(kafka.records) < 80:
        sizes.append(len(capture.poll()))
        if len(sizes) % 3 == 0:
            capture = database.capture(capture.crash(), max_batch_size="7")
    assert (1 << 20) - 200_000 < max(held) <= 1 << 20
    assert max(sizes) == 8
    expected = [("c", number) for number in range(40)]
    expected += [(kind, number) for number in range(20) for kind in ("d", "tombstone")]
    assert [(found[0], found[1][0]) for found in map(summary, kafka.records)] == expected
    assert "txn_events" not in (kafka.offset or {})


def test_interrupted_snapshot_begins_again(database: Database) -> None:
    database.sql("create table t (id int primary key)", "insert into t select seq from seq_1_to_10")
    capture = database.capture(max_batch_size="4")
    capture.poll()  # the beginning of the snapshot
    capture.poll()
    again = database.capture(capture.crash(), max_batch_size="4")
    again.until(lambda: len(again.kafka.records) >= 14)
    database.sql("insert into t values (11)")
    again.until(lambda: len(again.kafka.records) >= 15)
    assert [each.value["op"] for each in again.kafka.records][-2:] == ["r", "c"]


def test_rows_that_cannot_be_decoded_are_refused(database: Database) -> None:
    database.sql("create table t (id int primary key, n time)")
    capture = database.capture(snapshot_mode="no_data", time_precision_mode="connect")
    database.sql("insert into t values (1, '30:00:00')")
    with pytest.raises(DataError, match=r"column n of table .*\.t cannot be emitted.*row 0 at binlog"):
        capture.until(lambda: False)
    capture = database.capture(snapshot_mode="no_data")
    database.sql("set global binlog_row_metadata = no_log")
    try:
        with database.server.connect(database.name) as connection, connection.cursor() as cursor:
            cursor.execute("insert into t values (2, null)")
        with pytest.raises(ConnectError, match="binlog_row_metadata = FULL"):
            capture.until(lambda: False)
        assert "binlog_row_metadata is NO_LOG" in str(MysqlConnector.problems(database.config()))
    finally:
        database.sql("set global binlog_row_metadata = full")
    assert MysqlConnector.problems(database.config()) == {}


def test_quiet_tables_let_the_offset_advance(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.connect.connectors.mysql.task.QUIET_S", 0.1)
    database.sql("create table t (id int primary key)", "create table other (id int)")
    capture = database.capture(snapshot_mode="no_data", table_include_list=f"{database.name}.t")
    capture.poll()
    database.sql("insert into other values (1)")
    end = database.rows("show master status")[0][1]
    capture.until(lambda: bool(capture.kafka.offset) and capture.kafka.offset["pos"] == end)
    assert capture.kafka.records == []


def test_heartbeats_and_hidden_columns(database: Database) -> None:
    database.sql("create table t (id int primary key, card varchar(20), secret text)")
    capture = database.capture(
        snapshot_mode="no_data", heartbeat_interval_ms="100", column_exclude_list=rf"{database.name}\.t\.secret",
        column_mask_with_4_chars=rf"{database.name}\.t\.card",
    )  # fmt: skip
    database.sql("insert into t values (1, '4111', 's')")
    capture.until(lambda: len({each.topic for each in capture.kafka.records}) == 2)
    rows = [each.value["after"] for each in capture.kafka.records if "after" in each.value]
    assert rows == [{"id": 1, "card": "****"}]
    assert "__debezium-heartbeat.p" in {each.topic for each in capture.kafka.records}
