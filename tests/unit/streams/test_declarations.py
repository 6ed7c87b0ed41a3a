"""Declarations of a program: what is rejected where it is written, and schemas of dataclasses."""

from __future__ import annotations

import base64
import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.streams import StreamsError, pipeline, stream, table, to
from ottla.streams.declarations import Stream
from ottla.streams.event_time import milliseconds
from ottla.streams.schemas import ddl, protobuf

ROWS = cast("Any", object())


@dataclass
class Place:
    x: float
    y: float | None


@dataclass
class Click:
    user: str
    at: dt.datetime
    day: dt.date
    price: Decimal
    count: int
    is_new: bool
    raw: bytes
    tags: list[str]
    places: dict[str, Place]


def test_dataclass_becomes_ddl() -> None:
    assert ddl(Click) == (
        "`user` STRING, `at` TIMESTAMP, `day` DATE, `price` DECIMAL(38,18), `count` BIGINT, `is_new` BOOLEAN, "
        "`raw` BINARY, `tags` ARRAY<STRING>, `places` MAP<STRING, STRUCT<`x`: DOUBLE, `y`: DOUBLE>>"
    )


def test_columns_of_a_dataclass_are_parsed_by_the_source() -> None:
    from ottla.spark.ddl import data_type, parse

    assert data_type(parse(ddl(Click))).simpleString().startswith("struct<user:string,at:timestamp,day:date,")


@dataclass
class Odd:
    field: complex


def test_type_without_a_column_is_named() -> None:
    with pytest.raises(StreamsError, match=r"Odd\.field is of type complex"):
        ddl(Odd)


def named(rows: Any = stream("t")) -> Any:
    """The function of a pipeline."""
    return to("u", rows)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: stream("a b"), "'a b' is not the name of a topic"),
        (lambda: stream("t", cast("Any", "jsn"), schema="a INT"), "value is 'jsn'; did you mean 'json'"),
        (lambda: stream("t", "protobuf"), "A value in protobuf needs a schema"),
        (lambda: stream("t", "protobuf", schema="a INT"), "neither a generated Protobuf class nor"),
        (lambda: stream("t", "protobuf", schema="/missing/file#shop.Order"), "No such file"),
        (lambda: stream("t", "json"), "A value in json needs a schema"),
        (lambda: stream("t", schema="a INT"), "A value in bytes has no schema; did you mean value='json'"),
        (lambda: stream("t", key_schema="a INT"), "key_schema has no effect without key"),
        (lambda: stream("t", columns=["offsets"]), "columns is 'offsets'; did you mean 'offset'"),
        (lambda: stream("t", "text", bad="skip"), "any bytes are valid text"),
        (lambda: stream("t", "json", schema="a INT", bad="drop"), 'must be "fail", "skip" or "topic:NAME"'),
        (lambda: stream("t", "json", schema="a INT", bad="topic:"), "not the name of a topic"),
        (lambda: stream("t", late="1 hour"), "late has no effect without time"),
        (
            lambda: stream("t", "text", time="timestamp", late="10 minuts"),
            r"stream\('t'\): late is '10 minuts'; it must be a duration such as \"10 minutes\" or \"1 day\"",
        ),
        (lambda: stream("t", "text", time="timestamp", late=cast("Any", 600)), "late is 600; it must be a duration"),
        (lambda: stream("t", "text", time="timestamp", idle="5 minuts"), "idle is '5 minuts'; it must be a duration"),
        (lambda: stream("t", "text", time=cast("Any", 1)), "time is 1; it must be the name of a column"),
        (lambda: stream("t", "text", columns="partition"), r"it must be a list: \['partition'\]"),
        (lambda: stream("t", "json", schema="a INT", bad=cast("Any", None)), "bad is None; it must be"),
        (lambda: stream(cast("Any", ["t"])), r"\['t'\] is not the name of a topic"),
        (
            lambda: table("t", key=cast("Any", ["k"]), schema="x INT"),
            r"key is \['k'\]; it must be the name of a column",
        ),
        (lambda: table("t", key="k", schema="x INT", broadcast=cast("Any", "no")), "broadcast is 'no'; it must be of"),
        (lambda: table("t", key="k", schema="x INT", as_of="yesterday"), "as_of is 'yesterday'; it must be a time"),
        (lambda: table("t", key="k", schema="x INT", as_of=cast("Any", {"0": 1})), "an offset for each partition"),
        (lambda: to("t", ROWS, key=cast("Any", [1])), "key is 1; it must be the name of a column"),
        (lambda: to("t", ROWS, timestamp=cast("Any", 1)), "timestamp is 1; it must be the name of a column"),
        (lambda: pipeline(exactly_once=cast("Any", "no"))(named), "Pipeline 'named': exactly_once is 'no'"),
        (lambda: pipeline(max_records=cast("Any", "10"))(named), "max_records is '10'; it must be a number from 1 on"),
        (lambda: pipeline(max_records=0)(named), "max_records is 0; it must be a number from 1 on"),
        (lambda: pipeline(name=cast("Any", 7))(named), "cannot be called 7"),
        (lambda: stream("t", "text", time="timestamp", max_future="1 day"), "brokers reject such timestamps"),
        (lambda: stream("t", idle="1 minute"), "idle has no effect without time"),
        (lambda: stream("t", "text", time="timestamp", idle="0 s"), "it must be longer than 0"),
        (lambda: stream("t", max_future="1 day"), "max_future has no effect without time"),
        (
            lambda: stream("t", "json", schema="at TIMESTAMP", time="at", max_future="soon"),
            "max_future is 'soon'",
        ),
        (lambda: stream("t", start=cast("Any", "begin")), "start is 'begin'"),
        (lambda: table("t", key="k"), "A value in json needs a schema"),
        (lambda: to("t", ROWS, mode=cast("Any", "update")), "mode is 'update'; did you mean 'updates'"),
        (lambda: to("t", ROWS, schema="a INT"), "schema has no effect on json"),
        (lambda: pipeline(cast("Any", lambda rows: rows)), "cannot be called '<lambda>'"),
    ],
)
def test_wrong_declaration_is_rejected_where_it_is_written(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        declare()


def test_parameter_needs_an_input() -> None:
    with pytest.raises(StreamsError, match="the parameter 'b' must have stream"):

        @pipeline
        def p(a: Any = stream("a"), b: int = 3) -> Any: ...


def test_pipeline_needs_a_stream() -> None:
    with pytest.raises(StreamsError, match="has no stream"):

        @pipeline
        def p(a: Any = table("a", key="k", schema="x INT")) -> Any: ...


def test_pipeline_is_called_like_its_function() -> None:
    @pipeline(name="n", exactly_once=True)
    def p(a: Any = stream("a", "text")) -> Any:
        return to("b", a)

    assert (p.name, p.exactly_once, p.streams) == ("n", True, {"a": Stream("a", "text")})
    assert p.outputs(a=ROWS) == (to("b", ROWS),)
    assert p(ROWS) == to("b", ROWS)


def test_result_of_a_pipeline_must_be_outputs() -> None:
    @pipeline
    def nothing(a: Any = stream("a")) -> Any:
        return None

    @pipeline
    def doubled(a: Any = stream("a")) -> Any:
        return [to("b", a), to("b", a)]

    with pytest.raises(StreamsError, match="returns NoneType; it must return to"):
        nothing.outputs(a=ROWS)
    with pytest.raises(StreamsError, match="two outputs to 'b'"):
        doubled.outputs(a=ROWS)


def test_event_time_of_the_record_is_a_column() -> None:
    assert stream("t", "text", time="timestamp").columns == ("timestamp",)


def test_declarations_do_not_import_spark() -> None:
    program = "import sys; from ottla.streams import pipeline, stream, table, to; print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("text", "wanted_ms"),
    [
        ("10 minutes", 600_000),
        ("1 Day 12 hours", 129_600_000),
        ("90s", 90_000),
        ("1h30min", 5_400_000),
        ("250 ms", 250),
        ("0 seconds", 0),
    ],
)
def test_durations_of_event_time(text: str, wanted_ms: int) -> None:
    assert milliseconds("late", text) == wanted_ms


@pytest.mark.parametrize("text", ["", "10", "minutes", "10 minuts", "1 month", "1 day!", "-1 day"])
def test_wrong_duration_is_rejected(text: str) -> None:
    with pytest.raises(StreamsError, match=r"late is .* it must be a duration such as"):
        milliseconds("late", text)


def test_tombstones_need_a_key() -> None:
    with pytest.raises(StreamsError, match="deleted needs key"):
        to("a", None, deleted="gone")  # type: ignore[arg-type]


def test_protobuf_schema_is_a_class_or_a_file(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2, type_pb2

    name, _, text = protobuf(type_pb2.Field).partition(" ")
    found = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text))
    assert name == "google.protobuf.Field"
    assert [each.name for each in found.file][-1] == "google/protobuf/type.proto"
    assert len(found.file) == 3
    (tmp_path / "types").write_bytes(found.SerializeToString())
    assert protobuf(f"{tmp_path}/types#{name}") == f"{name} {text}"
    with pytest.raises(StreamsError, match="neither a generated Protobuf class"):
        protobuf(Place)
