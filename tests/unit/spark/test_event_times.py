"""Values without an event time, or with one too far after the timestamp of their record, are invalid."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from ottla.spark.event_times import EventTimes
from ottla.spark.formats import FormatError, decode
from ottla.spark.options import OptionError, SourceOptions, read_source_options
from ottla.spark.source import source_schema

NOON_MS = int(dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp() * 1000)


def options(schema: str = "at TIMESTAMP, x INT", **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "value.format": "json", "value.time": "at"}
    return read_source_options({**given, "value.schema": schema, **more}, streaming=False)


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    """Records with a timestamp in milliseconds and a value."""
    values = [None if value is None else value.encode() for _, value in rows]
    stamps = pa.array([stamp * 1000 for stamp, _ in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch(
        {
            "key": pa.array([b"k"] * len(rows), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["t"] * len(rows), pa.string()),
            "partition": pa.array([3] * len(rows), pa.int32()),
            "offset": pa.array(range(100, 100 + len(rows)), pa.int64()),
            "timestamp": stamps,
        }
    )


ROWS = (
    (NOON_MS, '{"at": "2026-01-01T13:00:00Z", "x": 1}'),
    (NOON_MS, '{"at": "2026-01-01T13:00:00.000001Z", "x": 2}'),
    (NOON_MS, None),
    (NOON_MS, '{"at": "2026-01-01T12:00:00Z", "x": 3}'),
    (-1, '{"at": "2999-01-01T00:00:00Z", "x": 4}'),
    (2**63 // 1000 - 1, '{"at": "2999-01-01T00:00:00Z", "x": 5}'),
    (NOON_MS, '{"at": "1999-01-01T00:00:00Z", "x": 6}'),
)


def test_record_is_named() -> None:
    with pytest.raises(FormatError) as raised:
        list(decode(iter([batch(*ROWS)]), options(**{"value.maxFuture": "1h"})))
    assert str(raised.value).startswith(
        "Topic 't', partition 3, offset 101: the value's field at is 2026-01-01T13:00:00.000001+00:00, more than 1 h "
        "after the record's timestamp 2026-01-01T12:00:00+00:00"
    )


@pytest.mark.parametrize("start", [0, 1])
def test_permissive_read_has_null_and_the_bytes(start: int) -> None:
    given = options(mode="PERMISSIVE", includeErrors="true", **{"value.maxFuture": "1h"})
    (typed,) = decode(iter([batch(*ROWS).slice(start)]), given)
    typed.validate(full=True)
    found: list[Any] = typed.column("value").to_pylist()
    assert [row and row["x"] for row in found] == [1, None, None, 3, 4, 5, 6][start:]
    errors = typed.column("error").to_pylist()
    assert [index for index, each in enumerate(errors) if each is not None] == [1 - start]
    assert (errors[1 - start]["part"], errors[1 - start]["key"]) == ("value", b"k")
    assert errors[1 - start]["value"].decode() == ROWS[1][1]
    assert typed.schema.names == [*source_schema(given).fieldNames()[:5], "timestamp", "error"]


@pytest.mark.parametrize("value", ['{"x": 3}', '{"at": null, "x": 3}'])
def test_missing_time_is_invalid(value: str) -> None:
    records = [(NOON_MS, '{"at": "2026-01-01T12:00:00Z", "x": 1}'), (NOON_MS, None), (NOON_MS, value)]
    with pytest.raises(FormatError, match="offset 102: the value's field at is null, but it is the event time"):
        list(decode(iter([batch(*records)]), options()))
    (typed,) = decode(iter([batch(*records)]), options(mode="PERMISSIVE", includeErrors="true"))
    assert [row and row["x"] for row in typed.column("value").to_pylist()] == [1, None, None]
    errors = typed.column("error").to_pylist()
    assert [each and (each["message"], each["value"]) for each in errors] == [
        None, None, ("the value's field at is null, but it is the event time", value.encode()),
    ]  # fmt: skip


def test_text_of_a_corrupt_value_remains_although_it_has_no_time() -> None:
    given = options("at TIMESTAMP, _corrupt_record STRING", mode="PERMISSIVE", includeErrors="true")
    (typed,) = decode(iter([batch((NOON_MS, "no JSON"), (NOON_MS, "{}"))]), given)
    assert typed.column("value").to_pylist() == [{"at": None, "_corrupt_record": "no JSON"}, None]
    assert ["JSON" in each["message"] for each in typed.column("error").to_pylist()] == [True, False]


def test_default_is_one_day() -> None:
    list(decode(iter([batch((NOON_MS, '{"at": "2026-01-02T12:00:00Z"}'))]), options()))
    with pytest.raises(FormatError, match="more than 1 d"):
        list(decode(iter([batch((NOON_MS, '{"at": "2026-01-02T12:00:01Z"}'))]), options()))


def test_reason_of_a_time_beyond_the_calendar() -> None:
    times = pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    stamps = pa.array([0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    ((row, field, problem),) = EventTimes("at", 1000).find(pa.StructArray.from_arrays([times], ["at"]), stamps)
    assert (row, field) == (0, "at")
    assert problem.startswith(f"is {2**62 // 1000} ms, more than 1 s after the record's timestamp 1970-01-01")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"value.time": "x"},
            "value.time is 'x'; it must be a field of type timestamp",
        ),
        ({"value.maxFuture": "soon"}, "value.maxFuture: 'soon' is not a duration"),
    ],
)
def test_wrong_options(more: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source_schema(options(**more))


def test_options_need_each_other() -> None:
    servers = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    with pytest.raises(OptionError, match=r"value\.maxFuture has no effect without value.time"):
        source_schema(read_source_options({**servers, "value.maxFuture": "1h"}, streaming=False))
    with pytest.raises(OptionError, match="the value has no fields"):
        source_schema(read_source_options({**servers, "value.time": "at"}, streaming=False))
