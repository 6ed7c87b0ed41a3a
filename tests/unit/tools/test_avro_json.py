import datetime as dt
import io
import json
import uuid
from decimal import Decimal

import fastavro
import pytest

from ottla.tools.formats.avro_json import FromJson, to_json


def convert(schema, value):
    named = {}
    return FromJson(fastavro.parse_schema(schema, named_schemas=named), named)(value)


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", True),
        ("long", 2**60),
        ("double", 0.5),
        ("string", "é"),
        ("bytes", b"\x00\xff"),
        (["null", "string"], None),
        (["null", "string"], "x"),
        (["null", "int", "string"], "1"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, {"a": [1, 2]}),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("12.30")),
        (logical("long", "timestamp-millis"), dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC)),
        (logical("long", "local-timestamp-micros"), dt.datetime(2026, 1, 2, 3, 4, 5, 678901)),  # noqa: DTZ001
        (logical("int", "date"), dt.date(2026, 1, 2)),
        (logical("int", "time-millis"), dt.time(1, 2, 3)),
        (logical("string", "uuid"), uuid.UUID(int=7)),
    ],
)
def test_values_survive_json(schema, value):
    text = to_json(value)
    converted = convert(schema, json.loads(text))
    assert converted == value
    fastavro.schemaless_writer(io.BytesIO(), fastavro.parse_schema(schema), converted)


def test_tagged_unions_of_avros_json_encoding_are_accepted():
    assert convert(["null", "string", "int"], {"int": 1}) == 1
    record = {"type": "record", "name": "a.R", "fields": [{"name": "x", "type": "int"}]}
    assert convert(["null", record], {"a.R": {"x": 1}}) == {"x": 1}


RECORD = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "next", "type": ["null", "R"], "default": None},
    ],
}


def test_recursive_record():
    assert convert(RECORD, {"id": 1, "next": {"id": 2}}) == {"id": 1, "next": {"id": 2}}


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (RECORD, {}, "'id' is missing"),
        (RECORD, {"id": 1, "other": 2}, "no field 'other'"),
        (RECORD, {"id": "x"}, "'id' is 'x', which is not int"),
        (RECORD, {"id": True}, "'id' is True"),
        (RECORD, {"id": 1, "next": 5}, "'next' is 5, which is not null or R"),
        ({"type": "array", "items": "int"}, ["x"], r"'\[\]' is 'x'"),
        (logical("int", "date"), "tomorrow", "'tomorrow', which is not date"),
        (logical("bytes", "decimal", precision=4, scale=2), "many", "not decimal"),
        ("bytes", "€", "not bytes"),
    ],
)
def test_value_that_does_not_fit_names_the_field(schema, value, text):
    with pytest.raises(ValueError, match=text):
        convert(schema, value)
