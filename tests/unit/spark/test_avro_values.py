"""Avro values as typed columns and back, with the options of the source and the sink."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from ottla.spark.avro_values import avro_schema
from ottla.spark.formats import FormatError, column_type, decode
from ottla.spark.options import OptionError, SourceOptions, read_sink_options, read_source_options
from ottla.spark.writing_formats import encoder

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"], "default": None}],
}
LATE = {"carrier": "AA", "delay": 7}


def written(value: Any, schema: Any = FLIGHT) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def options(schema: Any = FLIGHT, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "flights", "value.format": "avro"}
    named = {name.replace("_", "."): value for name, value in more.items()}
    return read_source_options({**given, "value.avro.schema": json.dumps(schema), **named}, streaming=False)


def values(raw: list[bytes | None], asked: SourceOptions) -> list[Any]:
    """Return the typed column of values that were read from offset 100 on."""
    count = len(raw)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(raw, pa.binary()),
        "topic": pa.array(["flights"] * count, pa.string()),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
    }
    (typed,) = decode(iter([pa.record_batch(columns)]), asked)
    found: list[Any] = typed.column("value").to_pylist()
    return found


def encode(kind: DataType, rows: Any, nullable: bool = True, **given: str) -> list[Any]:
    """Return the Avro values of a column `value`."""
    named = {name.replace("_", "."): value for name, value in given.items()}
    asked = read_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "value.format": "avro", **named})
    made = encoder(asked, StructType([StructField("value", kind, nullable)]))
    batch = pickle.loads(pickle.dumps(made))(pa.record_batch({"value": rows}))
    found: list[Any] = batch.column("value").to_pylist()
    return found


def test_values_are_columns_of_the_schema() -> None:
    kind = column_type("value", options())
    assert kind.simpleString() == "struct<carrier:string,delay:int>"
    assert isinstance(kind, StructType)
    assert [field.nullable for field in kind.fields] == [False, True]
    assert values([written(LATE), None], options()) == [LATE, None]


def test_key_has_its_own_schema() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "key.format": "avro", "key.avro.schema": '"long"'}
    assert column_type("key", read_source_options(given)) == LongType()


def test_invalid_value_is_an_error_with_its_field() -> None:
    with pytest.raises(FormatError, match=r"'flights', partition 3, offset 101: the value's field delay has an index"):
        values([written(LATE), b"\x02A\x08"], options())


def test_invalid_value_is_null_in_permissive_mode() -> None:
    asked = options(mode="PERMISSIVE")
    kind = column_type("value", asked)
    assert isinstance(kind, StructType)
    assert all(field.nullable for field in kind.fields)
    assert values([written(LATE), b"\x02A\x08", b""], asked) == [LATE, None, None]


def test_values_are_read_with_the_reader_schema() -> None:
    wanted = {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "late", "type": ["null", "double"], "aliases": ["delay"]},
            {"name": "origin", "type": "string", "default": "JFK"},
        ],
    }
    asked = options(value_avro_readerSchema=json.dumps(wanted))
    assert values([written(LATE)], asked) == [{"late": 7.0, "origin": "JFK"}]


def test_wire_format_header_is_skipped() -> None:
    asked = options(value_avro_header="confluent")
    assert values([b"\x00\x00\x00\x00\x07" + written(LATE)], asked) == [LATE]
    with pytest.raises(FormatError, match="offset 100: the value does not begin with the header"):
        values([written(LATE)], asked)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"value_avro_schema": "{"}, r"value\.avro\.schema is not JSON"),
        ({"value_avro_schema": '{"type": "record", "name": "R"}'}, "is a record without 'fields'"),
        ({"value_avro_schema": '["null"]'}, "always null"),
        ({"value_avro_header": "magic"}, "it must be none"),
        ({"value_avro_readerSchema": '"int"'}, r"readerSchema: The value was written as record Flight"),
        ({"value_format": "json", "value_schema": "a INT"}, r"value\.avro\.schema is given, but value\.format is json"),
        ({"value_schema": "a INT"}, r"did you mean value\.format=json"),
        ({"mode": "DROPMALFORMED"}, "must be FAILFAST"),
    ],
)
def test_invalid_avro_options_are_rejected(given: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        column_type("value", options(**given))


def test_recursive_schema_is_rejected_by_name() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}
    with pytest.raises(OptionError, match="'left' uses 'Tree' recursively"):
        column_type("value", options(tree))


def test_reading_requires_a_schema() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "avro"}
    with pytest.raises(OptionError, match=r"needs value\.avro\.schema"):
        column_type("value", read_source_options(given))


KIND = StructType([StructField("carrier", StringType()), StructField("at", TimestampType(), False)])
ROWS = pa.array(
    [{"carrier": "AA", "at": -1}, None, {"carrier": None, "at": 1_500}],
    pa.struct([("carrier", pa.string()), ("at", pa.timestamp("us", "Europe/Berlin"))]),
)


def test_columns_are_written_with_the_derived_schema() -> None:
    raw = encode(KIND, ROWS)
    schema = fastavro.parse_schema(json.loads(avro_schema(KIND, nullable=True)))
    found = [None if each is None else fastavro.schemaless_reader(io.BytesIO(each), schema, None) for each in raw]
    assert found[1] is None
    assert isinstance(found[2], dict)
    assert found[2]["at"].microsecond == 1_500


def test_columns_are_written_with_the_given_schema() -> None:
    given = {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "CARRIER", "type": ["string", "null"]},
            {"name": "gate", "type": ["null", "int"]},
        ],
    }
    raw = encode(KIND, ROWS, value_avro_schema=json.dumps(given))
    assert raw == [b"\x01\x00\x04AA\x00", None, b"\x02\x02\x00"]


def test_unwritable_column_is_named() -> None:
    given = {
        "type": "record",
        "name": "F",
        "fields": [{"name": "at", "type": "long"}, {"name": "carrier", "type": "string"}],
    }
    with pytest.raises(FormatError, match="'carrier' is null"):
        encode(KIND, ROWS, value_avro_schema=json.dumps(given))
    with pytest.raises(OptionError, match="'carrier' is of type string, which cannot be written as int"):
        encode(KIND, ROWS, value_avro_schema=json.dumps(given).replace('"string"', '"int"'))
    with pytest.raises(OptionError, match="is for reading"):
        encode(KIND, ROWS, value_avro_header="confluent")
