"""Avro schemas: validity, forms and compatibility. tests/registry compares them with Java's classes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.model import InvalidSchema

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(kind: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def avro(schema: Any, **options: Any) -> AvroSchema:
    return AvroSchema(json.dumps(schema), **options)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "Schema not yet supported: 3"),
        ({"name": "R"}, "No type"),
        ({"type": {"type": "int"}}, "No type"),
        ("nope", "Undefined name: 'nope'"),
        ({"type": "record", "name": "R"}, r"Record has no fields.*\(in R\)"),
        ({"type": "record", "fields": []}, "No name in schema"),
        ({"type": "record", "name": "1", "fields": []}, "Illegal name '1'"),
        ({"type": "record", "name": "Größe", "fields": []}, "Illegal name 'Größe'"),
        ({"type": "record", "name": "R", "namespace": "a.b-c", "fields": []}, "Illegal name 'b-c'"),
        ({"type": "record", "name": "string", "fields": []}, "named after primitives"),
        (record(field("int"), field("int")), r"Duplicate field f in record R \(in R\.f\)"),
        (record({"type": "int"}), "No field name"),
        (record({"name": "f"}), r"No field type.*\(in R\.f\)"),
        (record(field("x.Missing")), r"Undefined name: 'x\.Missing' \(in R\.f\)"),
        (record(field("int", order="up")), "Invalid order"),
        (record(field("int", aliases="g")), "aliases not an array"),
        (record(field("int", aliases=[1])), "alias not a string"),
        (record(field("int"), aliases=["a-b"]), "Illegal name 'a-b'"),
        ({"type": "enum", "name": "E"}, "Enum has no symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "Duplicate enum symbol: A"),
        ({"type": "enum", "name": "E", "symbols": ["a-b"]}, "Illegal name 'a-b'"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "not a string"),
        (ENUM | {"default": "C"}, "The Enum Default: C is not in the enum symbol set"),
        ({"type": "fixed", "name": "F", "size": -1}, "Invalid or no size"),
        ({"type": "fixed", "name": "F", "size": 2.0}, "Invalid or no size"),
        ({"type": "array"}, "Array has no items type"),
        ({"type": "map"}, "Map has no values type"),
        (["int", "int"], "Duplicate in union:int"),
        (["int", ["null"]], "Nested union"),
        ([ENUM, ENUM | {"symbols": ["C"]}], "Can't redefine: E"),
        (record(field(record())), "Can't redefine: R"),
        (record(field("int", default="1")), r'Invalid default for field R\.f: "1" not a "int"'),
        (record(field("int", default=2**31)), "Invalid default"),
        (record(field("long", default=1.0)), "Invalid default"),
        (record(field("int", default=True)), "Invalid default"),
        (record(field("double", default="x")), "is not a number"),
        (record(field(["null", "int"], default="x")), "Invalid default"),
        (record(field({"type": "array", "items": "int"}, default=["x"])), "Invalid default"),
        (record(field({"type": "array", "items": "int"}, default={})), "Invalid default"),
        (record(field({"type": "map", "values": "int"}, default=[])), "Invalid default"),
        (record(field({"type": "record", "name": "S", "fields": [field("int")]}, default={})), "Invalid default"),
        (record(field("R", default={})), "Invalid default"),
        (record(field("L", default={}), field({"type": "fixed", "name": "L", "size": 1}, "g")), "Invalid default"),
    ],
)
def test_invalid_schema_is_reported_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        avro(schema)


@pytest.mark.parametrize(
    ("schema", "canonical"),
    [
        ({"type": "int"}, "int"),
        ({"type": "int", "doc": "dropped", "logicalType": "date"}, {"type": "int", "logicalType": "date"}),
        ([], []),
        (
            {"z": 1, "fields": [], "doc": "d", "aliases": ["A", "b.C"], "name": "a.R", "type": "record"},
            {
                "type": "record",
                "name": "R",
                "namespace": "a",
                "doc": "d",
                "fields": [],
                "z": 1,
                "aliases": ["A", "b.C"],
            },
        ),
        (
            record(field("int", order="DESCENDING", aliases=["g", "g"], x=None, default=1, doc="d")),
            record(field("int", doc="d", default=1, order="descending", aliases=["g"], x=None)),
        ),
        (record(field("int", order="ascending", doc=1)), record(field("int"))),
        (record(field("float", default="1.5f")), record(field("float", default=1.5))),
        (
            ENUM | {"default": None, "namespace": 3},
            ENUM,
        ),
        (
            record(field(ENUM | {"namespace": "b"}, "g"), field("b.E", "h"), namespace="a"),
            {
                "type": "record",
                "name": "R",
                "namespace": "a",
                "fields": [
                    field({"type": "enum", "name": "E", "namespace": "b", "symbols": ["A", "B"]}, "g"),
                    field("b.E", "h"),
                ],
            },
        ),
        (
            record(field("Later"), field({"type": "fixed", "name": "Later", "size": 1}, "g")),
            record(field({"type": "fixed", "name": "Later", "size": 1}), field("Later", "g")),
        ),
        ([ENUM, {"type": "array", "items": ENUM}], [ENUM, {"type": "array", "items": "E"}]),
        (record(field({"type": "R"})), record(field("R"))),
        (record(field(["null", "int"], default=1)), record(field(["null", "int"], default=1))),
    ],
)
def test_canonical_string_has_java_s_order_and_keeps_all_but_reserved_attributes(schema: Any, canonical: Any) -> None:
    assert avro(schema).canonical == json.dumps(canonical, separators=(",", ":"))


def test_name_like_a_type_keeps_its_namespace_at_its_use() -> None:
    schema = record(field({"type": "fixed", "name": "map", "size": 1}), field("a.map", "g"), namespace="a")
    assert '{"name":"g","type":"a.map"}' in avro(schema).canonical


def test_type_without_namespace_inside_of_one_is_marked() -> None:
    schema = record(field(ENUM | {"namespace": ""}), namespace="a")
    canonical = '{"name":"f","type":{"type":"enum","name":"E","namespace":"","symbols":["A","B"]}}'
    assert canonical in avro(schema).canonical
    assert canonical in avro(schema).normalized()


def test_comments_are_allowed() -> None:
    text = '{"type": /* a "comment" */ "fixed", // another\n "name": "a.F", "size": 1, "url": "http://x/*y*/"}'
    assert AvroSchema(text).canonical == '{"type":"fixed","name":"F","namespace":"a","size":1,"url":"http://x/*y*/"}'


def test_normalization_drops_what_has_no_meaning() -> None:
    schema = record(
        field("double", default=1, b={"z": 1, "a": 2}, a=1, aliases=["y", "x"], order="ASCENDING"),
        type="error",
        doc="",
        aliases=["Y", "X"],
    )
    assert avro(schema).normalized() == json.dumps(
        record(field("double", default=1.0, aliases=["x", "y"], a=1, b={"a": 2, "z": 1})) | {"aliases": ["X", "Y"]},
        separators=(",", ":"),
    )


def test_logical_type_comes_first_after_normalization_if_it_fits() -> None:
    decimal = {"type": "bytes", "a": 1, "scale": 0, "precision": 4, "logicalType": "decimal"}
    assert avro(decimal).normalized() == '{"type":"bytes","logicalType":"decimal","precision":4,"a":1,"scale":0}'
    assert avro(decimal | {"precision": 0}).normalized().startswith('{"type":"bytes","a":1,"logicalType"')


def test_stored_schema_is_read_with_older_rules() -> None:
    schema = record(field("int", default="x"), name="Größe")
    assert avro(schema, is_new=False).canonical == json.dumps(
        {"type": "record", "name": "Größe", "fields": [field("int", default="x")]},
        separators=(",", ":"),
        ensure_ascii=False,
    )


def test_types_of_references_are_names_in_the_canonical_string() -> None:
    schema = AvroSchema('{"type": "array", "items": "a.E"}', [json.dumps(ENUM | {"namespace": "a"})])
    assert schema.canonical == '{"type":"array","items":"a.E"}'
    assert schema.normalized() == schema.canonical
    with pytest.raises(InvalidSchema, match=r"Can't redefine: a\.E"):
        AvroSchema(json.dumps(ENUM | {"name": "a.E", "symbols": ["X"]}), [json.dumps(ENUM | {"namespace": "a"})])


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        ("long", "int", []),
        ("double", "float", []),
        ("string", "bytes", []),
        ("int", "long", ["TYPE_MISMATCH /"]),
        (["null", "long"], "int", []),
        ("int", ["null", "int"], ["TYPE_MISMATCH /0"]),
        (["null", "int"], ["int", "string"], ["MISSING_UNION_BRANCH /1"]),
        (record(field("int", default=1)), record(), []),
        (record(field("int")), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/0"]),
        (record(field("long", "new", aliases=["f"])), record(field("int")), []),
        (record(field("int", "new", aliases=["f"])), record(field("int"), field("int", "new")), [" /"]),
        (record() | {"name": "b.R"}, record() | {"name": "a.R"}, []),
        (record() | {"name": "S"}, record(), ["NAME_MISMATCH /name"]),
        (record(aliases=["Old"]), record() | {"name": "Old"}, []),
        (ENUM, ENUM | {"symbols": ["A", "C"]}, ["MISSING_ENUM_SYMBOLS /symbols"]),
        (ENUM | {"default": "A"}, ENUM | {"symbols": ["A", "C"]}, []),
        (
            {"type": "fixed", "name": "F", "size": 1},
            {"type": "fixed", "name": "F", "size": 2},
            ["FIXED_SIZE_MISMATCH /size"],
        ),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, ["TYPE_MISMATCH /values"]),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, ["TYPE_MISMATCH /items"]),
        (record(field(["null", "R"], "next")), record(field(["null", "R"], "next")), []),
        (
            record(field(["null", "R"], "next"), field("int")),
            record(field(["null", "R"], "next")),
            ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"],
        ),
    ],
)
def test_compatibility(reader: Any, writer: Any, expected: list[str]) -> None:
    found = avro(reader).incompatibilities(avro(writer))
    assert [f"{each.kind} {each.path}" for each in found] == expected
