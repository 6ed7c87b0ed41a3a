"""JSON Schemas: validity by draft, references and forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.json_schema.schema import JsonSchema
from ottla.schemas.model import InvalidSchema

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def parsed(schema: Any, **references: Any) -> JsonSchema:
    texts = {name.replace("_", "."): json.dumps(each) for name, each in references.items()}
    return JsonSchema(json.dumps(schema), texts)


def means(schema: Any, expected: Any, **references: Any) -> bool:
    """Whether a schema and another one accept the data of each other."""
    first, second = parsed(schema, **references), parsed(expected)
    return not first.incompatibilities(second) and not second.incompatibilities(first)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (3, "expected an object or boolean"),
        ([], "expected an object or boolean"),
        ({"type": "foo"}, r"at #/type"),
        ({"properties": {"a": {"minLength": -1}}}, r"at #/properties/a/minLength"),
        ({"properties": {"a": {"pattern": "("}}}, r"'\(' is not a regular expression|regex"),
        ({"required": "a"}, r"at #/required"),
        ({"$schema": DRAFT_4, "exclusiveMinimum": 3}, r"exclusiveMinimum|dependency|minimum"),
        ({"$schema": DRAFT_6, "exclusiveMinimum": True}, r"at #/exclusiveMinimum"),
        ({"$ref": "#/definitions/x"}, "leads to nothing"),
        ({"$ref": "#anchor"}, "anchor"),
        ({"$ref": "http://other.example/x.json"}, "not among the references"),
        ({"properties": {"a": {"$ref": "b.json#/x"}}}, "not among the references"),
        ({"$ref": "#/title", "title": "text"}, "is not a schema"),
        ({"$ref": "http://["}, "at #/.ref"),
    ],
)
def test_invalid_schema_is_reported_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parsed(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"$schema": "http://unknown.example/schema", "type": "string"},
        {"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"enum": [{"$ref": "#/nowhere"}], "default": {"$ref": "#/nowhere"}},
        {"unknown": {"$ref": 3}},
    ],
)
def test_valid_schema_is_accepted(schema: Any) -> None:
    parsed(schema)


def test_stored_schema_is_not_compared_with_the_meta_schema() -> None:
    assert JsonSchema('{"minLength": -1, "pattern": "("}', is_new=False).canonical == '{"minLength":-1,"pattern":"("}'


def test_canonical_string_keeps_order_and_numbers() -> None:
    schema = JsonSchema('{"type": "object",\n"a": 1.50, "$id": "x", "b": [1e3, {"z": 1, "y": "é"}]}')
    assert schema.canonical == '{"type":"object","a":1.50,"$id":"x","b":[1E+3,{"z":1,"y":"é"}]}'
    assert schema.normalized() == '{"$id":"x","a":1.50,"b":[1E+3,{"y":"é","z":1}],"type":"object"}'


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "references"),
    [
        ({"$ref": "#/definitions/a", "definitions": {"a": STRING}}, {}),
        ({"$ref": "#/$defs/a", "definitions": {"a": STRING}}, {}),
        ({"$ref": "#/definitions/a%25~1~0", "definitions": {"a%/~": STRING}}, {}),
        ({"$ref": "#/allOf/0", "allOf": [STRING]}, {}),
        ({"$ref": "#name", "definitions": {"a": {"$id": "#name", **STRING}}}, {}),
        ({"$ref": "inner.json", "$id": "http://x.example/a.json", "d": {"$id": "inner.json", **STRING}}, {}),
        ({"$ref": "leaf.json"}, {"leaf_json": STRING}),
        ({"$ref": "./leaf.json"}, {"leaf_json": STRING}),
        ({"$id": "http://x.example/dir/a.json", "$ref": "leaf.json"}, {"leaf_json": STRING}),
        ({"$ref": "leaf.json#/definitions/a"}, {"leaf_json": {"definitions": {"a": STRING}}}),
        ({"$ref": "leaf.json"}, {"leaf_json": {"$ref": "#/definitions/a", "definitions": {"a": STRING}}}),
        ({"$ref": "http://x.example/leaf"}, {"leaf_json": {"$id": "http://x.example/leaf", **STRING}}),
        ({"$ref": "one.json"}, {"one_json": {"$ref": "two.json"}, "two_json": STRING}),
        ({"$schema": DRAFT_2020, "$ref": "#x", "$defs": {"a": {"$anchor": "x", **STRING}}}, {}),
        ({"$schema": DRAFT_2020, "$dynamicRef": "#x", "$defs": {"a": {"$dynamicAnchor": "x", **STRING}}}, {}),
        ({"$schema": DRAFT_4, "$ref": "#x", "definitions": {"a": {"id": "#x", **STRING}}}, {}),
    ],
)
def test_reference_leads_to_its_schema(schema: Any, references: dict[str, Any]) -> None:
    assert means(schema, STRING, **references)
    assert not means(schema, {"type": "integer"}, **references)


@pytest.mark.parametrize(
    ("schema", "same"),
    [
        (
            {"$schema": DRAFT_2020, "prefixItems": [STRING], "items": False},
            {"items": [STRING], "additionalItems": False},
        ),
        ({"$schema": DRAFT_2020, "items": STRING}, {"items": STRING}),
        (
            {"$schema": DRAFT_2019, "items": [STRING], "additionalItems": STRING},
            {"items": [STRING], "additionalItems": STRING},
        ),
        ({"$schema": DRAFT_2019, "dependentRequired": {"a": ["b"]}}, {"dependencies": {"a": ["b"]}}),
        ({"$schema": DRAFT_2020, "dependentSchemas": {"a": STRING}}, {"dependencies": {"a": STRING}}),
        ({"$schema": DRAFT_4, "const": 1, "contains": {}}, {}),
    ],
)
def test_keywords_of_drafts_have_one_form(schema: Any, same: Any) -> None:
    assert means(schema, same)
