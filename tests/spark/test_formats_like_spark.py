"""JSON columns equal the columns of Spark's from_json and to_json."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StructType

from ottla.spark.formats import column_type, decode
from ottla.spark.json_columns import to_json
from ottla.spark.options import read_source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT, b STRING, c DOUBLE, d STRUCT<e: BIGINT, f: ARRAY<STRING>>, t TIMESTAMP, y BOOLEAN, n DECIMAL(9,2)"

# Field texts by type. An invalid field makes the whole value null in Ottla, but only the field null in Spark.
# The list omits texts that Spark reads wrongly: a TINYINT of 128 becomes -128, a DOUBLE of 1e400 becomes Infinity, a
# DATE of 20130203 is in the year 57084, and text after the value is ignored.
FIELDS = {
    "STRING": [
        "1", "1.50", "1e3", "1e10", "-0", "true", "null", '{"b": [1, 2.50] , "c":null}', "[ 1,2 ]", '"x"',
        '"\\u00e9\\ud83d\\ude00"', '"\\ud83d"', '"\\ud83dx"', "NaN", "-Infinity", '"a\nb"', '"a\tb"', '"\\x"', '"\\/"',
        "123456789012345678901234567890", "1E400", "'x'", '"\\u0000"', '""', '{"b":"\\u00e9\\/"}', '"\x7f"',
        "{'b':'\"'}", '"\\"\\\\\\b\\f\\n\\r\\t"', '["\\u0001"]', "+INF",
    ],
    "INT": [
        "1", "-0", "1e3", "1.0", "1.5", '"1"', '" 1 "', "true", "2147483647", "2147483648", "-2147483648",
        "-2147483649", "01", "+1", '""', "null", "[1]", "{}", "-", "99999999999999999999", ".5", "1.", "1e", "0x1",
    ],
    "BIGINT": [
        "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1.0", '"5"',
    ],
    "DOUBLE": [
        "1", "-0", "-0.0", "1.5", "1e-400", '"NaN"', "NaN", '"Infinity"', "Infinity", "-Infinity", '"-Infinity"',
        '"+Infinity"', "+Infinity", '"INF"', '"+INF"', '"-INF"', "INF", "+INF", '"1.5"', '"nan"', "true", "0.1",
        "123456789012345678901234567890", "2.2250738585072011e-308", "1E5", "1e+5", "9007199254740993",
    ],
    "FLOAT": ["1.1", "1e-50", "16777217", "340282346638528859811704183484516925440"],
    "DECIMAL(5,2)": [
        "1", "1.5", "1.555", "1.545", "-1.555", "999.99", "999.995", "999.994", "1000", '"1.5"', '" 1.5"', '"x"', "1e2",
        "1E-3", "-0", "-0.001", "NaN", '"NaN"', "true", "12345678901234567890123456789012345678901234567890",
        "0.00000000000000000000000000000000000000000001", '"1e2"', '"1,000"', '""', '"+1.5"', '"01.5"',
    ],
    "DECIMAL(38,10)": ["1", "1234567890123456789012345678.0123456789", "12345678901234567890123456789"],
    "BOOLEAN": ["true", "false", '"true"', "1", "0", "null", "TRUE"],
    "DATE": [
        '"2013-02-03"', '"2013-2-3"', '"2013-02-30"', '"2013-02-03T10:00:00"', '"2013-02-03 10:00:00Z"', '"2013"',
        '"2013-02"', "15000", '"0001-01-01"', '"9999-12-31"', '"2013-W05-1"', '" 2013-02-03 "', "1.5", "true",
        '"2013-034"', '"1500-01-01"', '"2012-02-29"', '"1900-02-29"',
    ],
    "TIMESTAMP": [
        '"2013-01-01T05:00:00Z"', '"2013-01-01 05:00:00"', '"2013-01-01T05:00:00"', '"2013-01-01T05:00:00.5+01:00"',
        '"2013-01-01T05:00:00.123456789Z"', '"2013-01-01"', '"2013-01-01T05"', '"2013-01-01T05:00"',
        '"2013-01-01T05:00:00+0100"', '"2013-01-01T05:00:00+01"', '"2013-01-01T05:00:00 UTC"', '"2013-01-01T24:00:00"',
        '"2013-01-01T23:59:60Z"', '"20130101T050000Z"', '"2013-1-1 5:0:0"', "1357016400", "1357016400.5",
        '"1357016400"', "-1", "99999999999", "true", '"2013-01-01T05:00:00,5Z"', '"2013-01-01T05:00:00+01:00:30"',
        '"2013-W05-1T05:00:00"', '"2013-01-01t05:00:00z"', '" 2013-01-01T05:00:00Z "', '"0001-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59.999999Z"', '"2013-01-01T05:00:00-00:00"', '"2013-01-01T05:00:00+18:00"',
        '"2013-01-01T05:00:00+19:00"', '"2013-01-01T05:00:00."', '"2013-01-01X05:00:00"',
    ],
    "TIMESTAMP_NTZ": [
        '"2013-01-01T05:00:00Z"', '"2013-01-01 05:00:00"', '"2013-01-01T05:00:00.123456"', '"2013-01-01"',
        '"2013-01-01T05:00:00.123456789"', '"2013-01-01T05:00"', "1357016400",
    ],
    "BINARY": [
        '"AAE="', '"AAE"', '"AA E="', '"AAE=="', '"!"', '""', "1", '"__8="', '"//8="', '"AAE=\\n"', "true", "{}",
        '"AAEC\\r\\nAAE="', '"\\/\\/8="',
    ],
    "ARRAY<INT>": ["[]", "[1,null]", "1", "{}", '[1,"x"]', "null", "[1,]", "[,1]", "[[1]]", '"[1]"'],
    "STRUCT<b: INT>": ["{}", '{"b":1}', "[]", "1", '"x"', '{"b":1,"b":2}', '{"b":1,"b":null}', '{"B":1}'],
    "MAP<STRING, INT>": ["{}", '{"x":1,"x":2}', '{"x":null}', "[]", '{"x":"y"}', "1"],
}  # fmt: skip

WHOLES = [
    "{}", '{"a":1} ', ' \n{"a":1}', '{"a":1', '{"a":1,}', '{,"a":1}', '{"a" 1}', "{a:1}", "{'a':1}", '\ufeff{"a":1}',
    '{"a":1,"a":2}', '{"a":2,"a":null}', '{"A":1}', '{"a":1,"b":}', '{"a":1,"b":01}', '{"a":1,"b":NaN}', "   ", "",
    '{"a":1,"b":"\\x"}', '{"a":1,"b":"\n"}', '{"a":1,"b":tru}', '{"a":1,"b":-}', '{"a":1/*c*/}', '{"\\u0061":1}',
    '{"b":{"a":5},"a":1}', '{"b":"\\ud800","a":1}', '{"":2,"a":1}', '{"a":1,"b":1e}', '{"a":1,"b":.5}', "[1]", "1",
    '{"a":1,"b":1e99999}', '{"a":1 "b":2}', '{"a":1;"b":2}', '{"b":' + "[" * 400 + "]" * 400 + ',"a":1}', '"x"', "oops",
    '{"b":' + "[" * 1500 + "]" * 1500 + ',"a":1}',
]  # fmt: skip


@contextmanager
def in_utc(spark: SparkSession) -> Iterator[None]:
    """Set the session's time zone to UTC. from_json uses it for times without a zone."""
    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    spark.conf.set(name, "UTC")
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set(name, before)


def ours(schema: str, texts: Sequence[str | None]) -> Any:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "json", "value.schema": schema}
    values = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    options = read_source_options({**given, "mode": "PERMISSIVE"}, streaming=False)
    (typed,) = decode(iter([pa.record_batch({"value": values})]), options)
    return typed.column("value")


def theirs(spark: SparkSession, schema: str, texts: Sequence[str]) -> list[Any]:
    """Return the values of from_json through Arrow, so that times and dates have the same Python types as ours."""
    rows = spark.createDataFrame([(i, text) for i, text in enumerate(texts)], "i INT, text STRING").coalesce(1)
    typed = rows.select("i", F.from_json("text", schema).alias("v")).toArrow()
    assert typed.column("i").to_pylist() == list(range(len(texts)))
    found: list[Any] = typed.column("v").to_pylist()
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list) and isinstance(other, list):  # in Spark, a map with a duplicate key has both entries
        return one == other or dict(one) == dict(other)
    return bool(one == other)


def test_fields_equal_the_fields_of_from_json(spark: SparkSession) -> None:
    differences = []
    with in_utc(spark):
        for kind, fields in FIELDS.items():
            schema = f"a {kind}, z INT, _corrupt_record STRING"
            texts = [f'{{"a":{field},"z":7}}' for field in fields]
            for field, one, other in zip(
                fields, ours(schema, texts).to_pylist(), theirs(spark, schema, texts), strict=True
            ):
                is_bad, is_bad_there = one["_corrupt_record"] is not None, other["_corrupt_record"] is not None
                if is_bad != is_bad_there or not (is_bad or same(one["a"], other["a"])):
                    differences.append((kind, field, one, other))
    assert not differences


def test_valid_and_invalid_json_are_read_as_by_from_json(spark: SparkSession) -> None:
    schema = "a INT, _corrupt_record STRING"
    assert ours(schema, [*WHOLES]).to_pylist() == theirs(spark, schema, WHOLES)


def test_texts_are_read_as_from_json_does(spark: SparkSession) -> None:
    texts = [
        '{"a":1,"b":"x","c":1.5,"d":{"e":7,"f":["p",null]},"t":"2013-01-01T05:00:00Z","y":true,"n":1.25}',
        '{"b":"say \\"é\\"","other":{"a":1},"c":-3}',
        '{ "a" : null,\n "d":{} }',
        "{}",
    ]
    with in_utc(spark):
        assert ours(SCHEMA, [*texts, None]).to_pylist() == [*theirs(spark, SCHEMA, texts), None]


WRITTEN = (
    "i BIGINT, f FLOAT, d DOUBLE, n DECIMAL(9,3), s STRING, b BINARY, y BOOLEAN, t TIMESTAMP, u TIMESTAMP_NTZ, e DATE, "
    'l ARRAY<STRUCT<x: INT>>, m MAP<STRING, DOUBLE>, `q"é` TINYINT'
)


def test_columns_are_written_as_to_json_does(spark: SparkSession) -> None:
    noon = dt.datetime(2013, 1, 1, 12, 0, 0, 250_000)  # noqa: DTZ001 - what clocks show
    rows = [
        (1, 1.5, 0.1, Decimal("1.250"), 'a"\\/\n\x01é😀', b"\0\xff", True, noon, noon, noon.date(),
         [(1,), None, (None,)], {"k": 1.0, "l": None}, 5),
        (-(2**63), 1e10, 1e7, Decimal("-0.001"), "", b"", False, noon, noon, dt.date(1, 2, 3), [], {}, -128),
        (None,) * 13,
        (0, float("nan"), float("-inf"), Decimal(0), "\x7f\t", None, None, None, None, None, None, {"": 1e-5}, None),
        (0, 16777216.0, 123456.789, None, None, None, None, None, None, None, None, {'q"': -0.0}, None),
        (0, 0.001, 0.00099, None, None, None, None, None, None, None, None, {"x": 1.7976931348623157e308}, None),
    ]  # fmt: skip
    with in_utc(spark):
        frame = spark.createDataFrame(rows, WRITTEN).coalesce(1)
        table = (
            frame.select(F.struct("*").alias("v"), F.to_json(F.struct("*")).alias("text")).toArrow().combine_chunks()
        )
    assert isinstance(frame.schema, StructType)
    found = to_json(table.column("v").chunk(0)).to_pylist()
    for one, other in zip(found, table.column("text").to_pylist(), strict=True):
        assert one.decode() == other
        json.loads(one)


def test_schema_equals_sparks_parsed_schema(spark: SparkSession) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "json", "value.schema": SCHEMA}
    assert column_type("value", read_source_options(given, streaming=False)) == spark.createDataFrame([], SCHEMA).schema
