"""The order of references, and parsing by type."""

from __future__ import annotations

import pytest

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.json_schema.schema import JsonSchema
from ottla.schemas.model import InvalidSchema, Reference, Schema, SchemaType
from ottla.schemas.parsing import in_order, parse


def schema(text: str, *names: str, kind: SchemaType = SchemaType.AVRO) -> Schema:
    return Schema(kind, text, tuple(Reference(name, name, 1) for name in names))


def test_referenced_schemas_come_before_the_schemas_that_use_them() -> None:
    referenced = {"a": schema("1", "b", "c"), "b": schema("2", "c"), "c": schema("3"), "unused": schema("4")}
    assert [name for name, _ in in_order(schema("0", "a", "b", "c"), referenced)] == ["c", "b", "a"]


def test_missing_reference_is_named() -> None:
    with pytest.raises(InvalidSchema, match="No schema reference found for name 'b'"):
        in_order(schema("0", "a"), {"a": schema("1", "b")})


def test_references_that_lead_back_are_invalid() -> None:
    with pytest.raises(InvalidSchema, match="lead back"):
        in_order(schema("0", "a"), {"a": schema("1", "b"), "b": schema("2", "a")})


def test_long_chain_of_references_is_ordered() -> None:
    referenced = {str(index): schema("", str(index + 1)) for index in range(5000)} | {"5000": schema("")}
    assert len(in_order(schema("", "0"), referenced)) == 5001


def test_avro_schema_uses_types_of_indirect_references() -> None:
    referenced = {
        "a.E": schema('{"type": "enum", "name": "a.E", "symbols": ["X"]}'),
        "a.R": schema('{"type": "record", "name": "a.R", "fields": [{"name": "e", "type": "E"}]}', "a.E"),
    }
    found = parse(schema('{"type": "array", "items": ["a.R", "a.E"]}', "a.R"), referenced)
    assert isinstance(found, AvroSchema)
    assert found.canonical == '{"type":"array","items":["a.R","a.E"]}'


def test_json_schema_uses_references_by_uri() -> None:
    referenced = {"leaf.json": schema('{"type": "string"}', kind=SchemaType.JSON)}
    found = parse(schema('{"$ref": "leaf.json"}', "leaf.json", kind=SchemaType.JSON), referenced)
    assert isinstance(found, JsonSchema)
    assert found.incompatibilities(JsonSchema('{"type": "integer"}'))[0].kind == "TYPE_CHANGED"
