"""Avro schemas: names and namespaces, invalid schemas, and schema resolution between writer and reader."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.serde import avro
from ottla.serde.avro_schema import AvroSchemaError, parse
from tests.unit.serde.test_avro import BUILT, decode


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def of(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_named_types_resolve_by_full_name_and_by_namespace() -> None:
    inner = {"type": "fixed", "name": "Id", "size": 2}
    schema = record(
        of("a", inner), of("b", "Id"), of("c", "x.y.Id"), of("d", {**inner, "namespace": "z"}), of("e", "z.Id"),
        namespace="x.y",
    )  # fmt: skip
    names = [field.node.name for field in parse(json.dumps(schema)).fields]
    assert names == ["x.y.Id", "x.y.Id", "x.y.Id", "z.Id", "z.Id"]


def test_logical_type_that_does_not_fit_is_ignored() -> None:
    for found in (
        {"type": "int", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5},
        {"type": "string", "logicalType": "colour"},
    ):
        assert parse(json.dumps(found)).logical == ""


@pytest.mark.parametrize(
    ("schema", "match"),
    [
        ("{", "not JSON"),
        ("7", "7 instead of a type"),
        ({"type": "record"}, "a record without a name"),
        (record(of("a", "Unknown")), "'a' is of type 'Unknown', which is not defined"),
        (record(of("a", "R")), "'a' uses 'R' recursively"),
        (record(of("a", {"type": "array", "items": ["null", "R"]})), r"'a\[\]' uses 'R' recursively"),
        (record(of("a", "int"), of("a", "long")), "'a' is defined twice"),
        (record(of("a b", "int")), "has the name 'a b'"),
        (record(of("a", record(name="R"))), "defines 'R' a second time"),
        (["int", "int"], "a union with 'int' twice"),
        (["int", ["null"]], "a union with a union in it"),
        ([], "a union without branches"),
        ({"type": "enum", "name": "E", "symbols": []}, "an enum without symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "default 'B'"),
        ({"type": "fixed", "name": "F"}, "without a size"),
        ({"type": "array"}, "has no attribute 'items'"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "39 digits"),
    ],
)
def test_invalid_schema_is_rejected_with_its_place(schema: Any, match: str) -> None:
    with pytest.raises(AvroSchemaError, match=match):
        parse(schema if isinstance(schema, str) else json.dumps(schema))


def test_too_deep_or_too_large_schema_is_rejected() -> None:
    deep: Any = "int"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(AvroSchemaError, match="nested more than"):
        parse(json.dumps(deep))
    wide = record(of("a", "int"), name="R0")
    # Each type uses the previous type twice.
    twice = [record(of("a", f"R{i - 1}"), of("b", f"R{i - 1}"), name=f"R{i}") for i in range(1, 60)]
    fields = [of(f"f{i}", each) for i, each in enumerate([wide, *twice])]
    with pytest.raises(AvroSchemaError, match="more than 20000 types"):
        parse(json.dumps(record(*fields)))


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
FEWER = {"type": "enum", "name": "E", "symbols": ["B", "A"], "default": "A"}


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        ("int", "long", 7),
        ("int", "double", 7),
        ("long", "float", 1 << 40),
        ("float", "double", 0.5),
        ("string", "bytes", "é"),
        ("bytes", "string", b"x"),
        (ENUM, FEWER, "B"),
        (ENUM, FEWER, "C"),
        ("int", ["null", "long"], 7),
        (["null", "int"], ["null", "long"], None),
        (["null", "int", "string"], ["null", "long"], 3),
        (record(of("a", "int"), of("b", "string")), record(of("b", "string")), {"a": 1, "b": "x"}),
        (
            record(of("b", "string")),
            record(
                of("n", "int", default=5),
                of("b", ["null", "string"], default=None),
                of("m", {"type": "map", "values": "long"}, default={"k": 1}),
                of("l", {"type": "array", "items": "string"}, default=["x", "y"]),
                of("u", ["null", "string"], default=None),
                of("s", record(of("f", "float", default=0.5), name="S"), default={"f": 0.25}),
            ),
            {"b": "x"},
        ),
        (
            record(
                of("a", {"type": "array", "items": record(of("x", "int"), of("y", ["null", ENUM]), name="S")}),
                of("m", {"type": "map", "values": ["null", "double"]}),
                of("f", {"type": "fixed", "name": "F", "size": 3}),
                of("b", "boolean"),
                of("z", "long"),
            ),
            record(of("z", "double")),
            {
                "a": [{"x": 1, "y": "C"}, {"x": 2, "y": None}],
                "m": {"k": 1.5, "n": None},
                "f": b"abc",
                "b": True,
                "z": 9,
            },
        ),
        (record(of("old", "int")), record(of("new", "int", aliases=["old"])), {"old": 4}),
    ],
)
def test_schema_resolution_agrees_with_fastavro(writer: Any, reader: Any, value: Any) -> None:
    raw = io.BytesIO()
    parsed = fastavro.parse_schema(writer) if isinstance(writer, dict) else writer
    fastavro.schemaless_writer(raw, parsed, value)
    theirs = fastavro.schemaless_reader(io.BytesIO(raw.getvalue()), writer, reader)
    decoder = avro.AvroDecoder(parse(json.dumps(writer)), parse(json.dumps(reader)))
    array, bad = decode(BUILT, decoder, [raw.getvalue(), None, raw.getvalue()])
    assert bad == []
    assert array[0].is_valid == (theirs is not None)
    ours = array.to_pylist()
    assert ours[1] is None
    assert ours[0] == ours[2] == _entries(theirs, array.type)


def _entries(value: Any, kind: Any) -> Any:
    """Convert maps to pyarrow's form."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _entries(value[field.name], field.type) for field in kind}
    return [_entries(each, kind.value_type) for each in value]


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("string", "int"),
        (record(of("a", "int")), record(of("b", "int"))),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}),
    ],
)
def test_incompatible_schemas_are_rejected(writer: Any, reader: Any) -> None:
    with pytest.raises(AvroSchemaError, match=r"cannot be read as|has no default"):
        avro.AvroDecoder(parse(json.dumps(writer)), parse(json.dumps(reader)))


def test_value_of_a_branch_unknown_to_the_reader_is_reported() -> None:
    decoder = avro.AvroDecoder(parse('["int", "string"]'), parse('"long"'))
    array, bad = decode(BUILT, decoder, [b"\x00\x04", b"\x02\x02x"])
    assert array.to_pylist() == [2, None]
    assert "was written as a type" in bad[0][2]


def test_json_defaults_are_encoded_as_specified() -> None:
    """fastavro does not convert two kinds of default: bytes given as text, and records with missing fields."""
    inner = record(of("f", "float", default=0.5), of("g", ["int", "null"], default=3), name="S")
    reader = record(of("y", "bytes", default="\u00ff"), of("s", inner, default={"g": None}))
    decoder = avro.AvroDecoder(parse(json.dumps(record())), parse(json.dumps(reader)))
    assert decode(BUILT, decoder, [b""])[0].to_pylist() == [{"y": b"\xff", "s": {"f": 0.5, "g": None}}]
    with pytest.raises(AvroSchemaError, match="'a' has the default"):
        avro.AvroDecoder(parse(json.dumps(record())), parse(json.dumps(record(of("a", "int", default="x")))))
