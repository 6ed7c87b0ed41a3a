"""Any text is a schema or InvalidSchema, never another exception, and within bounded work."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.json_schema.schema import JsonSchema
from ottla.schemas.json_text import DEEPEST
from ottla.schemas.model import InvalidSchema
from tests.registry.avro_schemas import Generator

TEXTS = 1500
KEYWORDS = (
    *(
        "type",
        "properties",
        "items",
        "$ref",
        "$id",
        "id",
        "enum",
        "const",
        "not",
        "allOf",
        "anyOf",
        "oneOf",
        "required",
    ),
    *("additionalProperties", "pattern", "minLength", "patternProperties", "maximum", "multipleOf", "dependencies"),
    *("definitions", "$defs", "if", "then", "$schema", "$anchor", "prefixItems", "contains", "unevaluatedProperties"),
    *("dependentRequired", "additionalItems", "default", "title", "minItems", "uniqueItems", "$dynamicRef", "a", "b"),
)
VALUES: tuple[Any, ...] = (
    *("string", "object", "array", "number", "#", "#/definitions/a", "#/$defs/b", "#a", "http://x.example/y", "//"),
    *("http://[", "%zz", "a", "^a(", "http://json-schema.org/draft-04/schema#", "http://x.example/schema", "\ud800"),
    *("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft/2020-12/schema", "urn:x", "#/items/0"),
    *(0, 1, -1, 1.5, 1e300, 10**30, None, True, False, "#/-1", f"#/{'0' * 30}1"),
)
PIECES = ("{", "}", "[", "]", '"', ",", ":", "\\", "/*", "//", "\\u00", "1e5", "null", "-", "\x00", " ", "é", "9" * 9)


class Texts:
    """Draws texts that are nearly schemas."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._avro = Generator(seed)

    def draw(self) -> str:
        kind = self._random.randrange(4)
        text = json.dumps(self._value(0) if kind < 2 else self._avro.defective())
        return self._damaged(text) if kind % 2 else text

    def _value(self, depth: int) -> Any:
        roll = self._random.random()
        if depth > 4 or roll < 0.3:
            return self._random.choice(VALUES)
        if roll < 0.45:
            return [self._value(depth + 1) for _ in range(self._random.randrange(3))]
        return {self._random.choice(KEYWORDS): self._value(depth + 1) for _ in range(self._random.randrange(5))}

    def _damaged(self, text: str) -> str:
        for _ in range(self._random.randrange(1, 4)):
            start = self._random.randrange(len(text) + 1)
            text = text[:start] + self._random.choice(PIECES) + text[start + self._random.randrange(5) :]
        return text


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
@pytest.mark.parametrize("is_new", [True, False])
def test_random_text_is_a_schema_with_stable_forms_or_invalid(kind: Any, is_new: bool) -> None:
    texts = Texts(int(is_new))
    previous = kind('{"type": "array", "items": "string"}' if kind is AvroSchema else "{}")
    valid = 0
    for _ in range(TEXTS):
        text = texts.draw()
        try:
            schema = kind(text, is_new=is_new)
        except InvalidSchema:
            continue
        valid += 1
        schema.canonical.encode()
        assert kind(schema.canonical, is_new=False).canonical == schema.canonical
        assert kind(schema.normalized(), is_new=False).normalized() == schema.normalized()
        schema.incompatibilities(previous)
        previous.incompatibilities(schema)
        previous = schema
    assert TEXTS / 20 < valid < TEXTS / 1.5


def nested(start: str, inner: str, end: str, levels: int) -> str:
    return start * levels + inner + end * levels


@pytest.mark.parametrize("levels", [DEEPEST // 2 - 2, DEEPEST * 2, 100_000])
@pytest.mark.parametrize(
    ("kind", "start", "inner", "end"),
    [
        (AvroSchema, '{"type":"array","items":', '"int"', "}"),
        (AvroSchema, '{"type":"map","a":', "1", ',"values":"int"}'),
        (AvroSchema, "[", '"int"', "]"),
        (JsonSchema, '{"not":', "{}", "}"),
        (JsonSchema, '{"allOf":[', "{}", "]}"),
        (JsonSchema, '{"default":', "1", "}"),
    ],
)
def test_deep_nesting_is_an_error_not_a_recursion(kind: Any, start: str, inner: str, end: str, levels: int) -> None:
    text = nested(start, inner, end, levels)
    try:
        schema = kind(text)
    except InvalidSchema:
        assert levels > DEEPEST or kind is AvroSchema
        return
    assert levels < DEEPEST
    schema.normalized()
    schema.incompatibilities(kind(nested(start, inner, end, levels - 1)))


def chain(leaf: str, *, forwards: bool) -> str:
    """2000 records, each with a field of the next one, as the fields of one record."""
    records: list[Any] = [
        {"type": "record", "name": f"R{index}", "fields": [{"name": "f", "type": f"R{index + 1}"}]}
        for index in range(2000)
    ]
    records.append({"type": "record", "name": "R2000", "fields": [{"name": "leaf", "type": leaf}]})
    given = records if forwards else records[::-1]
    fields = [{"name": each["name"].lower(), "type": each} for each in given]
    return json.dumps({"type": "record", "name": "Chain", "fields": fields})


def test_canonical_string_that_nests_too_deeply_is_invalid() -> None:
    with pytest.raises(InvalidSchema, match="nested deeper"):
        AvroSchema(chain("int", forwards=True))


def test_chain_of_named_types_is_compared_to_its_end() -> None:
    ints, longs = (AvroSchema(chain(each, forwards=False)) for each in ("int", "long"))
    assert longs.incompatibilities(ints) == []
    found = ints.incompatibilities(longs)
    assert found[0].kind == "TYPE_MISMATCH"
    assert len(found) == 1000


def test_long_chains_and_lists_are_read_in_linear_work() -> None:
    definitions: dict[str, Any] = {f"d{index}": {"$ref": f"#/definitions/d{index + 1}"} for index in range(20_000)}
    definitions["d20000"] = {"type": "string"}
    schema = JsonSchema(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))
    assert schema.incompatibilities(JsonSchema('{"type": "string"}')) == []
    symbols = [f"S{index}" for index in range(100_000)]
    with pytest.raises(InvalidSchema, match="Duplicate enum symbol: S99999"):
        AvroSchema(json.dumps({"type": "enum", "name": "E", "symbols": [*symbols, "S99999"]}))


def test_defaults_that_multiply_with_branches_are_invalid() -> None:
    branches: list[Any] = [{"type": "fixed", "name": f"F{index}", "size": 1} for index in range(5000)]
    field = {"name": "f", "type": {"type": "array", "items": [*branches, "int"]}, "default": [1] * 5000}
    with pytest.raises(InvalidSchema, match="more than 5000000 comparisons"):
        AvroSchema(json.dumps({"type": "record", "name": "R", "fields": [field]}))


def test_chain_of_definitions_is_compared_to_its_end() -> None:
    def schema(leaf: str, length: int = 2000) -> JsonSchema:
        definitions: dict[str, Any] = {
            f"d{index}": {"type": "object", "properties": {"p": {"$ref": f"#/definitions/d{index + 1}"}}}
            for index in range(length)
        }
        definitions[f"d{length}"] = {"type": leaf}
        return JsonSchema(json.dumps({"$ref": "#/definitions/d0", "definitions": definitions}))

    assert schema("number").incompatibilities(schema("integer")) == []
    assert [each.kind for each in schema("integer").incompatibilities(schema("number"))] == ["TYPE_NARROWED"]
    assert schema("integer", 4000).incompatibilities(schema("number", 4000)) != []


def test_repeated_uses_of_a_type_do_not_multiply_the_incompatibilities() -> None:
    def doubled(leaf: str) -> AvroSchema:
        inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": leaf}]}
        for index in range(1, 30):
            fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{index - 1}"}]
            inner = {"type": "record", "name": f"R{index}", "fields": fields}
        return AvroSchema(json.dumps(inner))

    found = doubled("int").incompatibilities(doubled("string"))
    assert {each.kind for each in found} == {"TYPE_MISMATCH"}
    assert len(found) <= 1000


def test_comparison_of_many_alternatives_ends() -> None:
    def union(name: str) -> JsonSchema:
        parts = [{"type": "object", "properties": {f"{name}{index}": {"type": "string"}}} for index in range(1000)]
        return JsonSchema(json.dumps({"anyOf": parts}))

    found = union("a").incompatibilities(union("b"))
    assert found[0].kind == ""
    assert "pairs" in found[0].message


def test_recursive_alternatives_are_compared_in_polynomial_work() -> None:
    def trade(kind: str) -> JsonSchema:
        names = [f"T{index}" for index in range(12)]
        union = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
        one = {"type": "object", "properties": {"id": {"type": "string"}, "one": union, "other": union}}
        definitions = dict.fromkeys(names, one) | {
            "T3": {"type": "object", "properties": {"id": {"type": kind}, "one": union}}
        }
        return JsonSchema(json.dumps({"type": "object", "properties": {"product": union}, "definitions": definitions}))

    assert trade("string").incompatibilities(trade("string")) == []
    assert trade("string").incompatibilities(trade("integer")) != []


@pytest.mark.parametrize("text", ['{"$ref": "#"}', '{"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}'])
def test_reference_to_itself_is_invalid(text: str) -> None:
    with pytest.raises(InvalidSchema, match="leads back to itself"):
        JsonSchema(text)


@pytest.mark.parametrize(
    "text", ["", " ", "null", "int", "NaN", '{"minimum": NaN}', "1e999999999999999999999", "9" * 5000]
)
def test_text_that_is_not_a_schema_is_invalid(text: str) -> None:
    for kind in (AvroSchema, JsonSchema):
        with pytest.raises(InvalidSchema):
            kind(text)
