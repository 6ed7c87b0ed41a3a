import json

import pytest

from ottla.schemas.model import Schema, SchemaType
from ottla.tools.schema_diff import differences


def avro(*fields):
    return Schema(SchemaType.AVRO, json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


def texts(before, after):
    return [change.text() for change in differences(before, after)]


def field(name, kind, **more):
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (field("a", "int"), field("a", "int", doc="new"), []),
        (field("a", "int"), field("a", "long"), ["changed: a from int to long"]),
        (field("a", "int"), field("a", "int", default=1), ["changed: a from int to int, default 1"]),
        (
            field("a", {"type": "enum", "name": "E", "symbols": ["X"]}),
            field("a", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
            ["changed: a from enum E of X to enum E of X, Y"],
        ),
        (
            field("a", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
            field("a", "bytes"),
            ["changed: a from bytes (decimal(4, 2)) to bytes"],
        ),
    ],
)
def test_avro_fields(before, after, expected):
    assert texts(avro(before), avro(after)) == expected


def test_nested_avro_fields_have_paths():
    def nested(*fields):
        inner = {"type": "record", "name": "I", "fields": list(fields)}
        return avro(field("items", {"type": "array", "items": inner}), field("m", {"type": "map", "values": "int"}))

    before, after = nested(field("n", "int")), nested(field("n", "int"), field("x", ["null", "string"], default=None))
    assert texts(before, after) == ["added: items[].x (null or string, default null)"]


def test_json_schema_properties():
    def schema(**properties):
        text = json.dumps({"type": "object", "properties": properties, "required": ["id"]})
        return Schema(SchemaType.JSON, text)

    before = schema(id={"type": "integer"}, old={"type": "string"})
    after = schema(id={"type": ["integer", "null"]}, at={"type": "string", "format": "date"})
    assert texts(before, after) == [
        "changed: id from integer, required to integer or null, required",
        'added: at (string, format "date")',
        "removed: old (string)",
    ]


def test_other_types_are_compared_by_line():
    before = Schema(SchemaType.PROTOBUF, "message A {\n  int32 a = 1;\n}")
    after = Schema(SchemaType.PROTOBUF, "message A {\n  int64 a = 1;\n}")
    assert texts(before, after) == ["removed: line (int32 a = 1;)", "added: line (int64 a = 1;)"]


def test_recursive_record_ends():
    schema = avro(field("next", ["null", "R"], default=None))
    assert texts(schema, schema) == []
