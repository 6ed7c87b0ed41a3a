"""The table sink on real databases: modes, keys, deletes, evolution, misfits, exactly once."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.api import TopicPartition
from ottla.connect.data import Schema, Type, struct
from ottla.connect.errors import ConnectError, RetriableError
from tests.connect.sql.driver import Site, record

everywhere = pytest.mark.parametrize("site", ["sqlite", "postgres", "mysql"], indirect=True)
KEY = struct({"id": data.INT64})
VALUE = struct({"id": data.INT64, "a": data.OPTIONAL_STRING})
UPSERT = {"insert_mode": "upsert", "pk_mode": "record_key", "auto_create": "true", "delete_enabled": "true"}


@everywhere
def test_upserts_deletes_and_tombstones_keep_their_order(site: Site) -> None:
    sink = site.sink(**UPSERT)
    sink.put(
        ({"id": 1}, {"id": 1, "a": "x"}), ({"id": 2}, {"id": 2, "a": "y"}), ({"id": 1}, None), key=KEY, value=VALUE
    )
    sink.put(({"id": 1}, {"id": 1, "a": "again"}), ({"id": 2}, {"id": 2, "a": None}), key=KEY, value=VALUE)
    assert site.rows("select id, a from t order by id") == [(1, "again"), (2, None)]


@everywhere
def test_insert_with_kafkas_place_and_update_by_a_field(site: Site) -> None:
    sink = site.sink(pk_mode="kafka", auto_create="true")
    sink.put((None, {"id": 1, "a": "x"}), (None, {"id": 1, "a": "x"}), value=VALUE)
    assert site.rows("select __connect_topic, __connect_offset, id from t order by 2") == [("t", 0, 1), ("t", 1, 1)]
    update = site.sink(insert_mode="update", pk_mode="record_value", pk_fields="id")
    update.put((None, {"id": 1, "a": "new"}), (None, {"id": 9, "a": "absent"}), value=VALUE)
    assert site.rows("select distinct id, a from t") == [(1, "new")]


@everywhere
def test_columns_are_added_if_the_settings_say_so(site: Site) -> None:
    site.sink(**UPSERT).put(({"id": 1}, {"id": 1, "a": "x"}), key=KEY, value=VALUE)
    wider = struct({"id": data.INT64, "a": data.OPTIONAL_STRING, "n": data.OPTIONAL_INT32})
    row = ({"id": 2}, {"id": 2, "a": "y", "n": 3})
    with pytest.raises(ConnectError, match=r"has no column n.*auto\.evolve"):
        site.sink(**UPSERT).put(row, key=KEY, value=wider)
    site.sink(**UPSERT, auto_evolve="true").put(row, key=KEY, value=wider)
    assert site.rows("select id, n from t order by id") == [(1, None), (2, 3)]


@everywhere
def test_record_that_does_not_fit_is_rejected_with_its_column(site: Site) -> None:
    check = " check (length(a) < 4)" if site.kind == "sqlite" else ""
    site.sql(f"create table t (id bigint not null primary key, a varchar(3) not null{check})")
    sink = site.sink(insert_mode="upsert", pk_mode="record_key")
    sink.put(
        ({"id": 1}, {"id": 1, "a": "ok"}), ({"id": 2}, {"id": 2, "a": None}), ({"id": 3}, {"id": 3, "a": "long text"}),
        ({"id": 4}, {"id": 4, "a": "ok"}), key=KEY, value=VALUE,
    )  # fmt: skip
    assert [each[0].offset for each in sink.rejected] == [1, 2]
    assert "column a of table t" in str(sink.rejected[0][1])
    if site.kind != "sqlite":
        assert "column a of table t" in str(sink.rejected[1][1])
    assert site.rows("select id from t order by id") == [(1,), (4,)]


@everywhere
def test_types_of_connect_and_debezium(site: Site) -> None:
    day = Schema(Type.INT32, name="io.debezium.time.Date", version=1)
    micro = Schema(Type.INT64, name="io.debezium.time.MicroTimestamp", version=1)
    value = struct({"d": data.decimal(2), "on": data.date(), "at": data.timestamp(), "b": data.BYTES, "dd": day,
                    "mt": micro, "f": data.BOOLEAN})  # fmt: skip
    sink = site.sink(**UPSERT)
    sink.put(
        ({"id": 1}, {"d": Decimal("1.25"), "on": date(2024, 2, 29), "at": datetime(2024, 1, 1, tzinfo=UTC),
                     "b": b"\0\xff", "dd": 1, "mt": 1_000_000, "f": True}),
        key=KEY, value=value,
    )  # fmt: skip
    row = site.rows("select d, `on`, at, b, dd, mt, f from t".replace("`", "`" if site.kind == "mysql" else '"'))[0]
    assert [Decimal(row[0]), bytes(row[3]), int(row[6])] == [Decimal("1.25"), b"\0\xff", 1]
    assert [str(row[each])[:19] for each in (1, 2, 4, 5)] == [
        "2024-02-29", "2024-01-01 00:00:00", "1970-01-02", "1970-01-01 00:00:01",
    ]  # fmt: skip


@everywhere
def test_events_of_debezium_are_rows(site: Site) -> None:
    row = struct({"id": data.INT64, "a": data.OPTIONAL_STRING}, optional=True)
    envelope = struct({"before": row, "after": row, "op": data.STRING}, "p.Envelope")
    sink = site.sink(**UPSERT)
    new = {"before": None, "after": {"id": 1, "a": "x"}, "op": "c"}
    sink.put(({"id": 1}, new), ({"id": 2}, {**new, "after": {"id": 2, "a": None}}), key=KEY, value=envelope)
    sink.put(({"id": 1}, {"before": None, "after": None, "op": "d"}), ({"id": 1}, None), key=KEY, value=envelope)
    assert site.rows("select id from t") == [(2,)]


@everywhere
def test_exactly_once_with_crashes_at_any_record(site: Site) -> None:
    """Batches are put again from old offsets, as after a lost commit; sums of plain inserts are exact."""
    chance = random.Random(7)
    settings = {"auto_create": "true", "exactly_once": "true"}
    done = 0
    while done < 60:
        sink = site.sink(start=max(0, done - chance.randrange(20)), **settings)
        assert sink.next == done, "the sink seeks to its own offset"
        for _ in range(chance.randrange(1, 4)):
            begin = max(0, done - chance.randrange(5))
            records = [record(n, (None, {"id": n, "a": "x"}), None, VALUE) for n in range(begin, done + 7)]
            sink.task.put(records)
            done += 7
        sink.task.stop()
    assert site.rows("select count(*), count(distinct id) from t") == [(done, done)]


@everywhere
def test_task_without_its_partition_writes_nothing(site: Site) -> None:
    settings = {"auto_create": "true", "exactly_once": "true"}
    old = site.sink(**settings)
    old.put((None, {"id": 0, "a": "x"}), value=VALUE)
    new = site.sink(**settings)
    new.put((None, {"id": 1, "a": "new"}), value=VALUE)
    with pytest.raises(RetriableError, match="does not own"):
        old.put((None, {"id": 1, "a": "old"}), value=VALUE)
    assert site.rows("select id, a from t order by id") == [(0, "x"), (1, "new")]


@pytest.mark.parametrize("site", ["mysql", "postgres"], indirect=True)
def test_killed_database_is_retried(site: Site) -> None:
    settings = {"auto_create": "true", "exactly_once": "true"}
    sink = site.sink(**settings)
    sink.put((None, {"id": 0, "a": "x"}), value=VALUE)
    site.connection.close()
    site.server.kill()
    rows: list[Any] = [record(1, (None, {"id": 1, "a": "y"}), None, VALUE)]
    try:
        with pytest.raises(RetriableError):
            sink.task.put(rows)
        with pytest.raises(RetriableError):
            sink.task.put(rows)
    finally:
        site.server.start()
        site.connection = site.server.connect(site.name)
    sink.task.put(rows)
    sink.task.close([TopicPartition("t", 0)])
    assert site.rows("select id from t order by id") == [(0,), (1,)]
