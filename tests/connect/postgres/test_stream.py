"""The stream: transactions in parts, restarts at every step, quiet tables, signals, limits."""

from __future__ import annotations

import json
import time

import pytest

from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.worker.transaction_boundaries import RequestedEnds
from tests.connect.capturing import Capture, assert_transactions_are_whole, numbers, summary
from tests.connect.postgres.driver import Database


def started(database: Database, **settings: str) -> Capture:
    """Capture an existing table from now on."""
    return database.capture(snapshot_mode="no_data", **settings)


@pytest.mark.parametrize("commits", [True, False])
def test_transaction_goes_on_in_its_middle_after_a_crash(database: Database, commits: bool) -> None:
    """A batch ends within a transaction; the rest comes once, whether or not the slot was confirmed."""
    database.sql("create table t (id int primary key)")
    capture = started(database, max_batch_size="10")
    kafka = capture.kafka
    database.sql("begin; insert into t select generate_series(1, 25); insert into t values (26); commit")
    database.sql("insert into t values (27)")
    for _ in range(50):
        if not capture.poll(commit=commits):
            continue  # without a stored offset, the next task would begin with a snapshot
        capture.crash()
        capture = database.capture(kafka, max_batch_size="10")
        if len(kafka.records) >= 27:
            break
    capture.poll()
    assert numbers(kafka.records) == list(range(1, 28))


@pytest.mark.parametrize("batch", [1, 10, 13])
def test_transaction_of_the_database_is_committed_as_a_whole(database: Database, batch: int) -> None:
    """`transaction.boundary=connector`, with batches that end within, at the end of, and after a transaction."""
    database.sql("create table t (id int primary key); insert into t values (0)")
    given = {"max_batch_size": str(batch)}
    capture = database.capture(requested=RequestedEnds(), **given)
    capture.until(lambda: numbers(capture.kafka.records) == [0])
    transactions = [list(range(1, 26)), [26], [27, 28], list(range(29, 40))]
    for each in transactions:
        database.sql(f"begin; insert into t select generate_series({each[0]}, {each[-1]}); commit")
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


def test_update_of_the_key_is_a_delete_and_a_create(database: Database) -> None:
    database.sql("create table t (id int primary key, a text); insert into t values (1, 'x')")
    capture = started(database)
    database.sql("update t set id = 2")
    capture.take(3)
    assert [summary(each)[:2] for each in capture.kafka.records] == [("d", (1,)), ("tombstone", (1,)), ("c", (2,))]
    assert capture.kafka.records[0].headers[0].key == "__debezium.newkey"
    assert capture.kafka.records[2].headers[0].value == {"id": 1}


def test_quiet_table_lets_the_slot_advance(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.connect.connectors.postgres.task.ASK_EVERY_S", 0.1)
    database.sql("create table t (id int primary key); create table other (id int)")
    capture = started(database, publication_autocreate_mode="filtered", table_include_list="public.t")
    before = database.slot()
    database.sql("insert into other select generate_series(1, 1000)")
    capture.until(lambda: database.slot()[0] > before[0])  # type: ignore[index]
    assert capture.kafka.records == []


def test_slot_is_confirmed_only_after_the_commit(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = started(database)
    before = database.slot()
    database.sql("insert into t values (1)")
    deadline = time.monotonic() + 10
    while not capture.kafka.records and time.monotonic() < deadline:
        capture.poll(commit=False)
    for _ in range(3):
        capture.poll(commit=False)
    assert database.slot()[0] == before[0]  # type: ignore[index]


def test_heartbeat_has_the_position_and_runs_its_query(database: Database) -> None:
    database.sql("create table t (id int primary key); create table beat (at timestamptz)")
    capture = started(
        database,
        heartbeat_interval_ms="100",
        heartbeat_action_query="insert into public.beat values (now())",
        table_include_list="public.t",
    )
    capture.until(lambda: len(capture.kafka.records) >= 2)
    record = capture.kafka.records[0]
    assert record.topic == "__debezium-heartbeat.p"
    assert record.key == {"serverName": "p"}
    assert set(record.value) == {"ts_ms"}
    assert database.rows("select count(*) from beat") >= [(2,)]


def test_slot_lag_beyond_the_limit_stops_the_task(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.connect.connectors.postgres.task.FACTS_EVERY_S", 0.0)
    database.sql("create table t (id int primary key, a text)")
    capture = started(database, max_slot_lag="100000")
    database.sql("insert into t select g, repeat('x', 1000) from generate_series(1, 1000) g")
    with pytest.raises(ConnectError, match=r"more than max\.slot\.lag=100000"):
        capture.until(lambda: False)


def test_facts_name_the_slot_and_its_lag(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = started(database)
    capture.poll()
    assert capture.facts["slot"] == f"slot_{database.name}"
    assert isinstance(capture.facts["slot_lag_bytes"], int)


def test_restart_of_the_server_is_retriable(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = started(database)
    database.connection.close()
    database.server.stop()
    try:
        with pytest.raises(RetriableError):
            capture.until(lambda: False)
    finally:
        database.server.start()
        database.connection = database.server.connect(database.name)
    database.sql("insert into t values (1)")
    again = database.capture(capture.crash(), snapshot_mode="no_data")
    assert numbers(again.take(1)) == [1]


def test_incremental_snapshot_meets_the_stream(database: Database) -> None:
    database.sql("create table signal (id text primary key, type text, data text)")
    database.sql("create table t (id int primary key, n int); insert into t select g, 0 from generate_series(1, 100) g")
    capture = started(database, signal_data_collection="public.signal", incremental_snapshot_chunk_size="30")
    wish = json.dumps({"data-collections": ["public.t"], "type": "incremental"})
    database.sql("insert into signal values ('1', 'execute-snapshot', %s)", wish)
    for number in range(1, 101, 10):
        database.sql("update t set n = n + 1 where id = %s", number)
        capture.poll()
    capture.until(lambda: capture.facts.get("incremental_snapshot") == "none" and _read(capture) > 60)
    rows = {(key,): (key, n) for key, n in database.rows("select id, n from t")}
    capture.until(lambda: capture.kafka.table("p.public.t") == rows)
    state = {}
    for each in capture.kafka.records:
        row = each.value["after"]
        assert row["n"] >= state.get(row["id"], 0), "a row is older than its predecessor"
        state[row["id"]] = row["n"]
    assert state == dict(database.rows("select id, n from t"))
    assert {each.value["source"]["snapshot"] for each in capture.kafka.records} >= {"incremental"}


def _read(capture: Capture) -> int:
    capture.task._last.facts = 0.0
    return sum(each.value["op"] == "r" for each in capture.kafka.records if each.value)


def test_incremental_snapshot_goes_on_after_a_crash(database: Database) -> None:
    database.sql("create table signal (id text primary key, type text, data text)")
    database.sql("create table t (id int primary key); insert into t select generate_series(1, 100)")
    capture = started(database, signal_data_collection="public.signal", incremental_snapshot_chunk_size="30")
    database.sql("insert into signal values ('1', 'execute-snapshot', %s)", '{"data-collections": ["public.t"]}')
    capture.until(lambda: 30 <= len(capture.kafka.records) < 100)
    capture.stop()
    again = database.capture(
        capture.kafka, signal_data_collection="public.signal", incremental_snapshot_chunk_size="30"
    )
    again.until(lambda: len(capture.kafka.records) >= 100)
    assert numbers(capture.kafka.records) == list(range(1, 101))


def test_blocking_snapshot_with_a_condition(database: Database) -> None:
    database.sql("create table signal (id text primary key, type text, data text)")
    database.sql("create table t (id int); insert into t select generate_series(1, 10)")
    capture = started(database, signal_data_collection="public.signal")
    wish = {
        "data-collections": ["public.t"],
        "type": "blocking",
        "additional-conditions": [{"data-collection": "public.t", "filter": "id > 7"}],
    }
    database.sql("insert into signal values ('1', 'execute-snapshot', %s)", json.dumps(wish))
    capture.until(lambda: len(capture.kafka.records) >= 3)
    database.sql("insert into t values (11)")
    capture.take(4)
    assert [(each.value["op"], each.value["after"]["id"]) for each in capture.kafka.records] == [
        ("r", 8),
        ("r", 9),
        ("r", 10),
        ("c", 11),
    ]


def test_value_that_cannot_be_emitted_names_column_and_position(database: Database) -> None:
    database.sql("create table t (id int primary key, n numeric(5,2) not null)")
    capture = started(database)
    database.sql("insert into t values (1, 'NaN')")
    with pytest.raises(DataError, match=r"n of table public.t.*NaN.*decimal.handling.mode"):
        capture.until(lambda: False)


def test_new_label_of_an_enum_is_read_again(database: Database) -> None:
    database.sql("create type mood as enum ('a'); create table t (id int primary key, m mood)")
    capture = started(database)
    database.sql("insert into t values (1, 'a')")
    capture.take(1)
    database.sql("alter type mood add value 'b'")
    database.sql("insert into t values (2, 'b')")
    records = capture.take(2)
    value = records[1].value_schema.fields_by_name["after"].schema  # type: ignore[union-attr]
    assert value.fields_by_name["m"].schema.parameters == {"allowed": "a,b"}


def test_flatten_emits_rows(database: Database) -> None:
    database.sql("create table t (id int primary key, a text)")
    capture = started(database, flatten="true")
    database.sql("insert into t values (1, 'x')")
    database.sql("delete from t")
    records = capture.take(2)
    assert [each.value for each in records] == [{"id": 1, "a": "x"}, None]


def test_rollback_and_savepoints(database: Database) -> None:
    database.sql("create table t (id int primary key)")
    capture = started(database)
    database.sql("begin; insert into t values (1); rollback")
    database.sql(
        "begin; insert into t values (2); savepoint s; insert into t values (3); rollback to s; "
        "insert into t values (4); commit"
    )
    assert numbers(capture.take(2)) == [2, 4]


def test_partitions_under_their_root(database: Database) -> None:
    database.sql("create table t (id int primary key) partition by range (id)")
    database.sql("create table t1 partition of t for values from (0) to (10)")
    database.sql("insert into t values (1)")
    capture = database.capture(publish_via_partition_root="true")
    capture.until(lambda: len(capture.kafka.records) >= 1)
    database.sql("insert into t values (2)")
    capture.take(2)
    assert {each.topic for each in capture.kafka.records} == {"p.public.t"}
