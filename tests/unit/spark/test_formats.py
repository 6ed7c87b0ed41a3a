"""JSON values as typed columns and back: rows keep their positions, and errors name the invalid field."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from ottla.spark.ddl import SchemaError, data_type, parse
from ottla.spark.formats import ERROR, FormatError, column_type, decode
from ottla.spark.json_columns import to_json
from ottla.spark.options import OptionError, SinkOptions, SourceOptions, read_sink_options, read_source_options
from ottla.spark.source import source_schema
from ottla.spark.writing_formats import encoder
from tests.conftest import DRAWN_EXAMPLES

FLIGHT = "carrier STRING, delay INT"


def options(schema: str, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights", "value.format": "json"}
    return read_source_options({**given, "value.schema": schema, **more}, streaming=False)


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["flights"] * count, pa.string()),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(100, 100 + count), pa.int64()),
        }
    )


def read(schema: str, values: list[bytes | None], **more: str) -> list[Any]:
    (typed,) = decode(iter([batch(values)]), options(schema, **more))
    typed.validate(full=True)
    return typed.column("value").to_pylist()


def test_values_become_rows_in_their_positions() -> None:
    values = [b'{"carrier":"UA","delay":7}', None, b'{"delay":-3,"other":[1]}', b"{}"]
    assert read(FLIGHT, values) == [
        {"carrier": "UA", "delay": 7},
        None,
        {"carrier": None, "delay": -3},
        {"carrier": None, "delay": None},
    ]


def test_rows_keep_their_positions_if_values_contain_newlines() -> None:
    values = [b' {\n "carrier":\r\n"UA" }\n', b'{"carrier":"a\\nb"}', b'\t{"carrier":"B6"}']
    assert [row["carrier"] for row in read("carrier STRING", values)] == ["UA", "a\nb", "B6"]


@pytest.mark.parametrize(
    "values",
    [
        [
            b'{"a":1,',
            b'"a":2}',
            b'{"a":3}{"a":4}',
        ],  # two halves of an object and two objects in one value: as many objects as values
        [b'{"a":1}{"a":2}', b"", b'{"a":3}'],
        [b'{"a":"', b'"}', b'{"a":1} {"a":2}'],
        [b'{"a":{"x":1}', b',"b":1}', b'{"a":1}{"a":2}'],
    ],
)
def test_invalid_values_do_not_move_other_rows(values: list[bytes | None]) -> None:
    good = [b'{"a":%d}' % n for n in range(50)]
    rows = read("a INT", [*good, *values, *good], mode="PERMISSIVE")
    assert [row["a"] for row in rows[:50]] == list(range(50)) == [row["a"] for row in rows[-50:]]
    assert len(rows) == 100 + len(values)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (FLIGHT, b'{"delay":"late"}', "the value's field delay is 'late'; it must be int"),
        (FLIGHT, b'{"delay":3000000000}', "the value's field delay is 3000000000; it must be int"),
        (FLIGHT, b'{"delay":1.5}', "the value's field delay is 1.5; it must be int"),
        ("a STRUCT<b: ARRAY<STRUCT<c: DATE>>>", b'{"a":{"b":[{},{"c":"soon"}]}}', "field a.b[1].c is 'soon'"),
        (FLIGHT, b"[1]", "the value is [1]; it must be an object"),
        (FLIGHT, b"{oops", "the value is not JSON"),
        (FLIGHT, b'{"carrier":"\xff"}', "the value is not UTF-8 at byte 12"),
        (FLIGHT, b'{"delay":1} {"delay":2}', "the value is not JSON: Extra data"),
        ("m MAP<STRING, INT>", b'{"m":{"x":true}}', "field m['x'] is true; it must be int"),
        ("t TIMESTAMP", b'{"t":"noon"}', "field t is 'noon'; it must be timestamp"),
    ],
)
def test_invalid_value_error_names_field_topic_partition_and_offset(schema: str, value: bytes, said: str) -> None:
    values = [b"{}"] * 40 + [value] + [b"{}"] * 40
    with pytest.raises(FormatError) as raised:
        read(schema, values)
    assert str(raised.value).startswith("Topic 'flights', partition 3, offset 140: ")
    assert said in str(raised.value)


def test_invalid_records_have_their_error_and_their_bytes() -> None:
    given = options("a INT", mode="PERMISSIVE", includeErrors="true", **{"key.format": "json", "key.schema": "b INT"})
    records = batch([b'{"a":1}', b'{"a":"x"}', None, b"no"])
    records = records.set_column(0, "key", pa.array([None, b'{"b":"y"}', b'{"b":2}', b'{"b":3}'], pa.binary()))
    (typed,) = decode(iter([records]), given)
    typed.validate(full=True)
    errors = typed.column("error").to_pylist()
    assert [each and each["part"] for each in errors] == [None, "key", None, "value"]
    assert errors[1]["message"].startswith("the key's field b ")
    assert (errors[1]["key"], errors[1]["value"]) == (b'{"b":"y"}', b'{"a":"x"}')
    assert (errors[3]["key"], errors[3]["value"]) == (b'{"b":3}', b"no")
    assert source_schema(given)["error"].dataType == ERROR


def test_errors_need_permissive_mode() -> None:
    with pytest.raises(OptionError, match="includeErrors needs mode=PERMISSIVE"):
        options("a INT", includeErrors="true")
    with pytest.raises(OptionError, match="includeErrors is 'yes'"):
        options("a INT", includeErrors="yes")


def test_permissive_mode_returns_null_and_the_corrupt_text() -> None:
    values = [b'{"delay":1}', b"oops", None, b'{"delay":"x"}', b" "]
    assert read("delay INT", values, mode="permissive") == [{"delay": 1}, None, None, None, None]
    assert read("delay INT, _corrupt_record STRING", values, mode="permissive") == [
        {"delay": 1, "_corrupt_record": None},
        {"delay": None, "_corrupt_record": "oops"},
        None,
        {"delay": None, "_corrupt_record": '{"delay":"x"}'},
        None,
    ]
    assert read("delay INT, _corrupt_record STRING", values[:1])[0] == {"delay": 1, "_corrupt_record": None}


def test_values_are_converted_as_in_spark() -> None:
    assert read("a STRING", [b'{"a":1.50}', b'{"a":{"b":[1]}}', b'{"a":"x","a":"y"}']) == [
        {"a": "1.5"},
        {"a": '{"b":[1]}'},
        {"a": "y"},
    ]
    assert read("a DOUBLE", [b'{"a":"NaN"}', b'{"a":-Infinity}'])[1] == {"a": float("-inf")}
    assert read("a DECIMAL(10,2)", [b'{"a":1.555}', b'{"a":"7"}']) == [{"a": Decimal("1.56")}, {"a": Decimal("7.00")}]
    assert read("a BINARY", [b'{"a":"AAE="}']) == [{"a": b"\0\1"}]
    assert read("a MAP<STRING, INT>", [b'{"a":{"x":1}}']) == [{"a": [("x", 1)]}]


def test_times_are_utc_with_and_without_a_zone() -> None:
    values = [b'{"t":"2013-01-01T05:00:00Z"}', b'{"t":"2013-01-01 05:00:00"}', b'{"t":"2013-01-01T06:00:00.5+01:00"}']
    five = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    assert [row["t"] for row in read("t TIMESTAMP", values)] == [five, five, five.replace(microsecond=500_000)]
    assert read("t TIMESTAMP", values[:1] * 3)[2]["t"] == five
    assert read("d DATE", [b'{"d":"2013-02-03"}']) == [{"d": dt.date(2013, 2, 3)}]


# -- round trips of any value-------------------------------------------------------------------------------------

TYPES = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": st.text(st.characters(codec="utf-8"), max_size=12),
    "BOOLEAN": st.booleans(),
    "DATE": st.dates(dt.date(1800, 1, 1), dt.date(2200, 1, 1)),
    # ruff: noqa: DTZ001 - hypothesis requires bounds without a zone
    "TIMESTAMP": st.datetimes(dt.datetime(1800, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)),
    "BINARY": st.binary(max_size=8),
    "DECIMAL(9,3)": st.decimals(-999999, 999999, places=3),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, list[dict[str, Any] | None]]:
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=5))
    plain = {f"c{i}": TYPES[kind] for i, kind in enumerate(kinds)}
    fields = [f"c{i} {kind}" for i, kind in enumerate(kinds)]
    fields += [f"l ARRAY<{kinds[0]}>", f"s STRUCT<x: {kinds[-1]}, `y z`: STRING>"]
    inner = st.fixed_dictionaries({"x": st.none() | TYPES[kinds[-1]], "y z": st.none() | TYPES["STRING"]})
    row = st.fixed_dictionaries(
        {name: st.none() | values for name, values in plain.items()}
        | {"l": st.none() | st.lists(st.none() | TYPES[kinds[0]], max_size=3), "s": st.none() | inner}
    )
    return ", ".join(fields), draw(st.lists(st.none() | row, min_size=1, max_size=25))


@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
@given(columns())
def test_written_values_are_read_back(drawn: tuple[str, list[dict[str, Any] | None]]) -> None:
    from pyspark.sql.pandas.types import to_arrow_type

    schema, rows = drawn
    kind = column_type("value", options(schema))
    texts = to_json(pa.array(rows, to_arrow_type(kind, timezone="UTC")))
    assert [text is None for text in texts.to_pylist()] == [row is None for row in rows]
    for text in texts.to_pylist():
        if text is not None:
            json.loads(text)
    assert read(schema, texts.to_pylist()) == rows


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("a INTT", "value.schema has the unknown type 'intt'"),
        ("a ARRAY<INT", "value.schema ends too early"),
        ("a INT b INT", "value.schema has 'b' after 'a INT', expected ','"),
        ("a INT, a INT", "value.schema has the column 'a' twice"),
        ("BIGINT", "value.schema is bigint; it must be columns or a struct"),
        ("a MAP<INT, INT>", "has keys of int; keys of JSON are strings"),
        ('{"type":"struct"}', "is not a Spark type in JSON"),
        ("_corrupt_record INT, a INT", "_corrupt_record must be a STRING"),
    ],
)
def test_invalid_schema_is_rejected(schema: str, said: str) -> None:
    with pytest.raises(OptionError, match=r".*") as raised:
        column_type("value", options(schema))
    assert said in str(raised.value)


def test_schema_without_a_format_is_rejected() -> None:
    with pytest.raises(OptionError, match=r"did you mean value\.format=json"):
        column_type("value", options("a INT", **{"value.format": "raw"}))


def test_schemas_are_read_as_spark_writes_them() -> None:
    kind = StructType([StructField("a", IntegerType()), StructField("b c", StructType([StructField("d", LongType())]))])
    assert data_type(parse(kind.json())) == kind
    assert data_type(parse("a INT, `b c` STRUCT<d: BIGINT>")) == kind
    assert data_type(parse("struct<a:int,`b c`:struct<d:bigint>>")) == kind
    assert data_type(parse("a VARCHAR(10) NOT NULL COMMENT 'it\\'s'")) == StructType(
        [StructField("a", StringType(), nullable=False)]
    )
    with pytest.raises(SchemaError):
        data_type(parse("a ARRAY<INT"))


# -- the sink ----------------------------------------------------------------------------------------------------


def sink(**more: str) -> SinkOptions:
    return read_sink_options({"kafka.bootstrap.servers": "localhost:1", "topic": "t", "value.format": "json", **more})


def test_all_other_columns_become_the_value() -> None:
    schema = data_type(parse("key STRING, carrier STRING, delay INT"))
    assert isinstance(schema, StructType)
    encode = encoder(sink(), schema)
    assert encode is not None
    rows = pa.record_batch({"key": ["a", "b"], "carrier": ["UA", None], "delay": pa.array([1, None], pa.int32())})
    encoded = encode(rows)
    assert encoded.column("value").to_pylist() == [b'{"carrier":"UA","delay":1}', b"{}"]
    assert encoded.column("key").to_pylist() == ["a", "b"]


def test_column_value_becomes_the_value() -> None:
    schema = data_type(parse("value STRUCT<a: INT>, other INT"))
    assert isinstance(schema, StructType)
    encode = encoder(sink(), schema)
    assert encode is not None
    values = pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))
    encoded = encode(pa.record_batch({"value": values, "other": [1, 2]}))
    assert encoded.column("value").to_pylist() == [b'{"a":1}', None]


def test_key_format_requires_a_key_column() -> None:
    schema = data_type(parse("a INT"))
    assert isinstance(schema, StructType)
    with pytest.raises(OptionError, match="no column 'key'"):
        encoder(sink(**{"key.format": "json"}), schema)


@pytest.mark.parametrize("kind", ["DECIMAL(50,2)", "DECIMAL(2,5)", "DECIMAL(0,0)", "ARRAY<DECIMAL(39)>"])
def test_invalid_decimals_are_rejected_in_ddl_and_json(kind: str) -> None:
    with pytest.raises(OptionError, match=r"value\.schema: a is decimal\(\d+,\d+\); a decimal has 1 to 38 digits"):
        column_type("value", options(f"a {kind}"))
    as_json = StructType([StructField("a", data_type(parse(kind)))]).json()
    with pytest.raises(OptionError, match="a decimal has 1 to 38 digits"):
        column_type("value", options(as_json))


@pytest.mark.parametrize("kind", ["DECIMAL(5,2,1)", "DECIMAL(²)", "DECIMAL(5,-2)"])
def test_misspelt_decimals_are_rejected(kind: str) -> None:
    with pytest.raises(OptionError, match=r"value\.schema (has|cannot be parsed at) "):
        column_type("value", options(f"a {kind}"))
