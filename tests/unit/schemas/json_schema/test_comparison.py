"""Which changes of a JSON Schema are incompatible: kinds and paths."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.schemas.json_schema.schema import JsonSchema
from ottla.schemas.model import Incompatibility

MODERN = "https://json-schema.org/draft/2020-12/schema"
OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = OPEN | {"additionalProperties": False}
STRINGS = OPEN | {"additionalProperties": {"type": "string"}}
X_STRINGS = OPEN | {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False}
TUPLE: dict[str, Any] = {"type": "array", "items": [{"type": "string"}]}


def found(old: Any, new: Any) -> list[Incompatibility]:
    return JsonSchema(json.dumps(new)).incompatibilities(JsonSchema(json.dumps(old)))


def differences(old: Any, new: Any) -> list[str]:
    return [f"{each.kind} {each.path}" for each in found(old, new)]


def with_properties(schema: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return schema | {"properties": schema["properties"] | more, **({"required": list(required)} if required else {})}


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, STRING, ["TYPE_CHANGED #/"]),
        (STRING, {}, []),
        (STRING, True, []),
        (False, STRING, []),
        (STRING, INTEGER, ["TYPE_CHANGED #/"]),
        (INTEGER, NUMBER, []),
        (NUMBER, INTEGER, ["TYPE_NARROWED #/"]),
        (STRING, STRING | {"maxLength": 3}, ["MAX_LENGTH_ADDED #/maxLength"]),
        (STRING | {"maxLength": 3}, STRING | {"maxLength": 2}, ["MAX_LENGTH_DECREASED #/maxLength"]),
        (STRING | {"maxLength": 2}, STRING | {"maxLength": 3}, []),
        (STRING | {"minLength": 2}, STRING | {"minLength": 3}, ["MIN_LENGTH_INCREASED #/minLength"]),
        (STRING, STRING | {"pattern": "a"}, ["PATTERN_ADDED #/pattern"]),
        (STRING | {"pattern": "a"}, STRING | {"pattern": "b"}, ["PATTERN_CHANGED #/pattern"]),
        (STRING | {"pattern": "a"}, STRING, []),
        (NUMBER | {"minimum": 1}, NUMBER | {"minimum": 1.5}, ["MINIMUM_INCREASED #/minimum"]),
        (NUMBER | {"minimum": 1}, NUMBER | {"minimum": 1.0}, []),
        (NUMBER | {"maximum": 1e2}, NUMBER | {"maximum": 99}, ["MAXIMUM_DECREASED #/maximum"]),
        (NUMBER, NUMBER | {"exclusiveMaximum": 1}, ["EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum"]),
        (NUMBER | {"multipleOf": 0.5}, NUMBER | {"multipleOf": 10}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
        (NUMBER | {"multipleOf": 10}, NUMBER | {"multipleOf": 0.5}, []),
        (NUMBER | {"multipleOf": 2}, NUMBER | {"multipleOf": 3}, ["MULTIPLE_OF_CHANGED #/multipleOf"]),
        (NUMBER | {"multipleOf": 1e-300}, NUMBER | {"multipleOf": 1e300}, ["MULTIPLE_OF_EXPANDED #/multipleOf"]),
        ({"enum": [1, "a"]}, {"enum": ["a", 1, None]}, []),
        ({"enum": [1, "a"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
        ({"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_CHANGED #/enum"]),
        ({"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}, []),
        ({"const": 1}, {"const": 2}, ["ENUM_ARRAY_CHANGED #/const"]),
        ({"not": STRING}, {"not": STRING | {"maxLength": 1}}, []),
        ({"not": STRING | {"maxLength": 1}}, {"not": STRING}, ["NOT_TYPE_EXTENDED #/not"]),
        (STRING | {"connect.type": "bytes"}, NUMBER | {"connect.type": "bytes"}, []),
    ],
)
def test_simple_types(old: Any, new: Any, expected: list[str]) -> None:
    assert differences(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (OPEN, with_properties(OPEN, b=STRING), ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"]),
        (OPEN, with_properties(OPEN, b={}), []),
        (
            OPEN,
            with_properties(OPEN, ("b",), b=STRING),
            ["REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"],
        ),
        (
            OPEN,
            with_properties(OPEN, ("b",), b=STRING | {"default": "x"}),
            ["REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"],
        ),
        (with_properties(OPEN, b=STRING), OPEN, []),
        (CLOSED, with_properties(CLOSED, b=STRING), []),
        (CLOSED, with_properties(CLOSED, ("b",), b=STRING | {"default": None}), []),
        (
            CLOSED,
            with_properties(CLOSED, ("b",), b=STRING),
            ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"],
        ),
        (with_properties(CLOSED, b=STRING), CLOSED, ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"]),
        (with_properties(CLOSED, b=False), CLOSED, []),
        (with_properties(STRINGS, b=STRING), STRINGS, []),
        (
            with_properties(STRINGS, b=INTEGER),
            STRINGS,
            [
                "TYPE_CHANGED #/properties/b",
                "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b",
            ],
        ),
        (STRINGS, with_properties(STRINGS, b=STRING), []),
        (
            STRINGS,
            with_properties(STRINGS, b=INTEGER),
            [
                "TYPE_CHANGED #/properties/b",
                "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b",
            ],
        ),
        (with_properties(X_STRINGS, x1=STRING), X_STRINGS, []),
        (
            with_properties(X_STRINGS, y1=STRING),
            X_STRINGS,
            ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/y1"],
        ),
        (OPEN, CLOSED, ["ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"]),
        (CLOSED, OPEN, []),
        (OPEN, STRINGS, ["ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"]),
        (STRINGS, OPEN, []),
        (OPEN, OPEN | {"required": ["a"]}, ["REQUIRED_ATTRIBUTE_ADDED #/required/a"]),
        (OPEN | {"required": ["a"]}, OPEN, []),
        (OPEN, OPEN | {"minProperties": 1}, ["MIN_PROPERTIES_ADDED #/minProperties"]),
        (OPEN | {"maxProperties": 3}, OPEN | {"maxProperties": 2}, ["MAX_PROPERTIES_DECREASED #/maxProperties"]),
        (OPEN, OPEN | {"dependencies": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"]),
        (
            OPEN | {"dependencies": {"a": ["b"]}},
            OPEN | {"dependencies": {"a": ["b", "c"]}},
            ["DEPENDENCY_ARRAY_EXTENDED #/dependencies/a"],
        ),
        (OPEN | {"dependencies": {"a": ["b", "c"]}}, OPEN | {"dependencies": {"a": ["b"]}}, []),
        (
            OPEN | {"dependencies": {"a": ["b"]}},
            OPEN | {"dependencies": {"a": ["c"]}},
            ["DEPENDENCY_ARRAY_CHANGED #/dependencies/a"],
        ),
        (OPEN, OPEN | {"dependencies": {"a": OPEN}}, ["DEPENDENCY_SCHEMA_ADDED #/dependencies/a"]),
        (
            OPEN | {"dependencies": {"a": OPEN}},
            OPEN | {"dependencies": {"a": CLOSED}},
            ["ADDITIONAL_PROPERTIES_REMOVED #/dependencies/a/additionalProperties"],
        ),
    ],
)
def test_objects(old: Any, new: Any, expected: list[str]) -> None:
    assert differences(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            {"type": "array", "items": INTEGER},
            {"type": "array", "items": NUMBER},
            [],
        ),
        ({"type": "array"}, {"type": "array", "items": NUMBER}, ["SCHEMA_ADDED #/items"]),
        ({"type": "array", "items": NUMBER}, {"type": "array"}, []),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}, ["TYPE_NARROWED #/items"]),
        (TUPLE, TUPLE | {"items": [STRING, {}]}, []),
        (TUPLE, TUPLE | {"items": [STRING, STRING]}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"]),
        (TUPLE | {"items": [STRING, STRING]}, TUPLE, []),
        (
            TUPLE | {"items": [STRING, STRING], "additionalItems": False},
            TUPLE | {"additionalItems": False},
            ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1"],
        ),
        (TUPLE | {"additionalItems": False}, TUPLE | {"items": [STRING, STRING], "additionalItems": False}, []),
        (
            TUPLE | {"additionalItems": STRING},
            TUPLE | {"items": [STRING, INTEGER], "additionalItems": STRING},
            ["TYPE_CHANGED #/items/1", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        ),
        (
            TUPLE | {"items": [STRING, INTEGER], "additionalItems": STRING},
            TUPLE | {"additionalItems": STRING},
            ["TYPE_CHANGED #/items/1", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1"],
        ),
        (TUPLE, TUPLE | {"additionalItems": False}, ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"]),
        (TUPLE, TUPLE | {"additionalItems": STRING}, ["ADDITIONAL_ITEMS_NARROWED #/additionalItems"]),
        ({"type": "array"}, {"type": "array", "maxItems": 1}, ["MAX_ITEMS_ADDED #/maxItems"]),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 2}, ["MIN_ITEMS_INCREASED #/minItems"]),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED #/uniqueItems"]),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, []),
    ],
)
def test_arrays(old: Any, new: Any, expected: list[str]) -> None:
    assert differences(old, new) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (STRING, {"oneOf": [INTEGER, STRING]}, []),
        (STRING, {"oneOf": [INTEGER, {"type": "null"}]}, ["TYPE_CHANGED #/"]),
        (STRING, {"allOf": [STRING]}, []),
        (STRING, {"allOf": [STRING, {"maxLength": 3}]}, ["TYPE_CHANGED #/"]),
        ({"allOf": [STRING, {"maxLength": 3}]}, STRING, []),
        ({"oneOf": [STRING]}, STRING, []),
        ({"oneOf": [STRING, INTEGER]}, STRING, ["TYPE_CHANGED #/"]),
        ({"oneOf": [STRING, INTEGER]}, {"oneOf": [INTEGER, STRING]}, []),
        ({"oneOf": [STRING, STRING]}, {"oneOf": [STRING]}, []),
        ({"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING]}, ["SUM_TYPE_NARROWED #/"]),
        ({"oneOf": [STRING]}, {"oneOf": [STRING, INTEGER]}, []),
        ({"allOf": [STRING]}, {"allOf": [STRING, {"enum": ["a"]}]}, ["PRODUCT_TYPE_EXTENDED #/"]),
        ({"oneOf": [STRING, INTEGER]}, {"anyOf": [STRING, INTEGER]}, []),
        ({"anyOf": [STRING, INTEGER]}, {"oneOf": [STRING, INTEGER]}, ["COMBINED_TYPE_CHANGED #/"]),
        (
            {"oneOf": [STRING, INTEGER]},
            {"oneOf": [STRING, {"type": "null"}]},
            ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"],
        ),
        ({"type": ["string", "null"]}, {"type": ["null", "string", "integer"]}, []),
        ({"type": ["string", "null"]}, {"type": ["string"]}, ["SUM_TYPE_NARROWED #/"]),
        ({"oneOf": [NUMBER, INTEGER]}, {"oneOf": [INTEGER, NUMBER]}, []),
        (
            STRING | {"enum": ["a", "b"]},
            STRING | {"enum": ["a"]},
            ["COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"],
        ),
        (STRING | {"enum": ["a"]}, STRING | {"enum": ["a", "b"]}, []),
    ],
)
def test_combined_types(old: Any, new: Any, expected: list[str]) -> None:
    assert differences(old, new) == expected


def tree(leaf: Any, union: bool = False) -> dict[str, Any]:
    child: Any = {"$ref": "#/definitions/node"}
    node = {"type": "object", "properties": {"id": leaf, "next": {"oneOf": [child]} if union else child}}
    return {"$ref": "#/definitions/node", "definitions": {"node": node}}


@pytest.mark.parametrize("union", [False, True])
def test_recursive_schemas_are_compared_to_their_end(union: bool) -> None:
    assert differences(tree(INTEGER, union), tree(NUMBER, union)) == []
    assert differences(tree(INTEGER, union), tree(STRING, union))[0] == "TYPE_CHANGED #/properties/id"


def test_cycle_does_not_hide_an_incompatible_branch() -> None:
    def schema(first: str, second: str) -> dict[str, Any]:
        def node(kind: str, target: str) -> dict[str, Any]:
            reference = {"oneOf": [{"$ref": f"#/definitions/{target}"}]}
            return {"type": "object", "properties": {"id": {"type": kind}, "ref": reference}}

        definitions = {"A": node(first, "C"), "B": node(second, "C"), "C": node("integer", "A")}
        root = {"oneOf": [{"$ref": "#/definitions/A"}, {"$ref": "#/definitions/B"}]}
        return {"type": "object", "properties": {"root": root}, "definitions": definitions}

    assert differences(schema("integer", "boolean"), schema("integer", "boolean")) == []
    assert differences(schema("integer", "boolean"), schema("boolean", "number")) != []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"prefixItems": [STRING]}, {"prefixItems": [INTEGER]}, ["TYPE_CHANGED #/items/0"]),
        (
            {"prefixItems": [STRING]},
            {"prefixItems": [STRING], "items": False},
            ["ADDITIONAL_ITEMS_REMOVED #/additionalItems"],
        ),
        ({"type": "array"}, {"type": "array", "contains": STRING}, ["MIN_CONTAINS_ADDED #/minContains"]),
        (
            {"type": "array"},
            {"type": "array", "unevaluatedItems": False},
            ["UNEVALUATED_ITEMS_REMOVED #/unevaluatedItems"],
        ),
        (OPEN, OPEN | {"unevaluatedProperties": STRING}, ["UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"]),
        (OPEN, OPEN | {"unevaluatedProperties": True}, ["UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties"]),
        (OPEN | {"unevaluatedProperties": False}, OPEN, []),
        (
            OPEN | {"unevaluatedProperties": False},
            with_properties(OPEN, b=STRING) | {"unevaluatedProperties": False},
            [],
        ),
        (OPEN, OPEN | {"dependentRequired": {"a": ["b"]}}, ["DEPENDENCY_ARRAY_ADDED #/dependencies/a"]),
        (OPEN, OPEN | {"dependentSchemas": {"a": OPEN}}, ["DEPENDENCY_SCHEMA_ADDED #/dependencies/a"]),
        ({"$ref": "#/$defs/a", "$defs": {"a": STRING}}, STRING, []),
    ],
)
def test_keywords_of_newer_drafts(old: Any, new: Any, expected: list[str]) -> None:
    assert differences(old | {"$schema": MODERN}, new | {"$schema": MODERN}) == expected


def test_sentences_name_path_and_schemas() -> None:
    assert found(CLOSED, with_properties(CLOSED, ("b",), b=STRING)) == [
        Incompatibility(
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
            "#/properties/b",
            "The required property at path '#/properties/b' in the reader schema is missing in the writer schema and "
            "has no default",
        )
    ]
