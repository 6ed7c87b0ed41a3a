"""The table source on real databases: modes, exact offsets, restarts, types."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.errors import ConnectError, DataError
from tests.connect.sql.driver import Site

ALL = ["sqlite", "postgres", "mysql"]
STAMP = {"sqlite": "timestamp", "postgres": "timestamp", "mysql": "datetime(6)"}
everywhere = pytest.mark.parametrize("site", ALL, indirect=True)


def numbers(records: Any) -> list[int]:
    return [each.value["id"] for each in records]


@everywhere
def test_incrementing_goes_on_after_a_restart(site: Site) -> None:
    site.sql("create table t (id integer not null primary key, a varchar(10))")
    site.sql("insert into t values (1, 'x'), (2, null), (3, 'z')")
    source = site.source(mode="incrementing", batch_max_rows="2")
    assert numbers(source.take(3)) == [1, 2, 3]
    assert source.records[1].value == {"id": 2, "a": None}
    assert source.records[0].topic == "p-t"
    source.task.stop()
    site.sql("insert into t values (7, 'n')")
    again = site.source(source.offsets, mode="incrementing")
    assert numbers(again.take(1)) == [7]
    assert again.records[0].source_offset == {"incrementing": 7}


@everywhere
def test_every_row_of_one_timestamp_arrives_although_a_batch_is_smaller(site: Site) -> None:
    site.sql(f"create table t (id integer not null, at {STAMP[site.kind]} not null)")
    for number in range(5):
        site.sql(f"insert into t values ({number}, '2024-01-01 00:00:00')")
    site.sql("insert into t values (5, '2024-01-01 00:00:01')", "insert into t values (6, '2024-01-01 00:00:02')")
    offsets: dict[str, Any] = {}
    seen: list[int] = []
    for _ in range(8):  # each batch is followed by a crash
        source = site.source(offsets, mode="timestamp", timestamp_column_name="at", batch_max_rows="2")
        seen += numbers(source.poll())
        source.task.stop()
    assert sorted(seen) == [0, 1, 2, 3, 4, 5, 6]


@everywhere
def test_timestamp_and_number_have_each_row_as_an_offset(site: Site) -> None:
    site.sql(f"create table t (id integer not null primary key, at {STAMP[site.kind]} not null)")
    site.sql("insert into t values (2, '2024-01-01 00:00:00')", "insert into t values (1, '2024-01-01 00:00:00')")
    site.sql("insert into t values (3, '2023-01-01 00:00:00.250')")
    settings = {"mode": "timestamp+incrementing", "timestamp_column_name": "at", "batch_max_rows": "1"}
    source = site.source(**settings)
    assert numbers(source.take(3)) == [3, 1, 2]
    assert source.records[0].source_offset == {
        "timestamp": 1672531200250, "timestamp_nanos": 250000000, "incrementing": 3,
    }  # fmt: skip
    site.sql("update t set at = '2024-02-01 00:00:00' where id = 3")
    assert numbers(source.take(4)) == [3, 1, 2, 3]


@everywhere
def test_delay_keeps_rows_back_until_earlier_transactions_have_ended(site: Site) -> None:
    site.sql(f"create table t (id integer not null, at {STAMP[site.kind]} not null)")
    now = {"sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')", "postgres": "now()", "mysql": "utc_timestamp(6)"}
    site.sql(f"insert into t values (1, {now[site.kind]})", "insert into t values (0, '2020-01-01 00:00:00')")
    source = site.source(mode="timestamp", timestamp_column_name="at", timestamp_delay_interval_ms="600000")
    assert numbers(source.take(1)) == [0]


@everywhere
def test_bulk_reads_all_rows_again_and_queries_are_read(site: Site) -> None:
    site.sql("create table t (id integer not null)", "insert into t values (1), (2), (3)")
    source = site.source(mode="bulk", batch_max_rows="2")
    source.until(lambda: len(source.records) >= 6)
    assert numbers(source.records)[:6] == [1, 2, 3, 1, 2, 3]
    query = site.source(mode="incrementing", query="select id, id * 2 as twice from t where id > 1",
                        incrementing_column_name="id", topic_prefix="q")  # fmt: skip
    assert [tuple(each.value.values()) for each in query.take(2)] == [(2, 4), (3, 6)]
    assert query.records[0].topic == "q"


@everywhere
def test_several_tables_share_a_task_and_new_columns_arrive(site: Site) -> None:
    for name in ("a", "b", "other"):
        site.sql(f"create table {name} (id integer not null primary key)", f"insert into {name} values (1)")
    source = site.source(mode="incrementing", table_whitelist="a,b")
    assert {each.topic for each in source.take(2)} == {"p-a", "p-b"}
    site.sql("alter table a add column n integer", "insert into a values (2, 5)")
    assert source.take(3)[2].value == {"id": 2, "n": 5}


TYPES = {
    "sqlite": "id integer primary key, d decimal(10,2), r real, s text, b blob, dd date, tt time, ts timestamp",
    "postgres": "id bigint primary key, d numeric(10,2), r float8, s text, b bytea, dd date, tt time, ts timestamp",
    "mysql": "id bigint primary key, d decimal(10,2), r double, s text, b blob, dd date, tt time(3), ts datetime(3)",
}


@everywhere
def test_types(site: Site) -> None:
    blob = "'\\x00ff'" if site.kind == "postgres" else "x'00ff'"
    site.sql(f"create table t ({TYPES[site.kind]})")
    site.sql(f"insert into t values (1, 12.50, 0.5, 'ü', {blob}, '2024-02-29', '10:11:12', '2024-02-29 10:11:12.345')")
    site.sql("insert into t (id) values (2)")
    first, second = site.source(mode="incrementing").take(2)
    assert first.value == {
        "id": 1, "d": Decimal("12.50"), "r": 0.5, "s": "ü", "b": b"\x00\xff", "dd": date(2024, 2, 29),
        "tt": time(10, 11, 12), "ts": datetime(2024, 2, 29, 10, 11, 12, 345000, UTC),
    }  # fmt: skip
    assert set(second.value.values()) == {2, None}
    assert first.value_schema is second.value_schema


@pytest.mark.parametrize("site", ["mysql"], indirect=True)
def test_unsigned_numbers_and_times_beyond_a_day(site: Site) -> None:
    site.sql("create table t (id int unsigned primary key, n bigint unsigned, u tinyint unsigned, tt time)")
    site.sql("insert into t values (4294967295, 18446744073709551615, 255, null)")
    source = site.source(mode="incrementing")
    assert source.take(1)[0].value == {"id": 4294967295, "n": Decimal(18446744073709551615), "u": 255, "tt": None}
    site.sql("create table x (id int primary key, tt time)", "insert into x values (1, '25:00:00')")
    with pytest.raises(DataError, match="column tt"):
        site.source(mode="incrementing", table_whitelist="x").take(1)


@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
def test_column_that_may_be_null_is_refused(site: Site) -> None:
    site.sql("create table t (id integer, at timestamp)")
    with pytest.raises(ConnectError, match=r"Column at of table t may be null.*validate\.non\.null"):
        site.source(mode="timestamp", timestamp_column_name="at").poll()
