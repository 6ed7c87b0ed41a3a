"""The JSON Schema converter follows the rules of Confluent's JsonSchemaData."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect import data
from ottla.connect.config.definition import SettingError
from ottla.connect.converters.json_encoder import dumps
from ottla.connect.converters.json_schema import JsonSchemaConverter
from ottla.connect.converters.json_schema_options import ENUM, UNION, JsonSchemaOptions
from ottla.connect.converters.json_schema_schemas import JsonSchemaReader, JsonSchemaWriter
from ottla.connect.converters.json_schema_values import encoder
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.registry_client import RegistryClient
from ottla.schemas.model import Schema as RegistrySchema
from ottla.schemas.model import SchemaType
from tests.connect.converters.json_text import TEXT
from tests.connect.converters.test_avro import ROW, VALUES

NULL = {"type": "null"}
INT8 = {"type": "integer", "connect.type": "int8"}
COLOR = Schema(Type.STRING, name="Color", parameters={ENUM: "", f"{ENUM}.RED": "RED", f"{ENUM}.<NULL>": "<NULL>"})
WRITTEN: tuple[tuple[Schema, Any, Any, str], ...] = (
    (data.INT8, INT8, 5, "5"),
    (data.OPTIONAL_INT8, {"oneOf": [NULL, INT8]}, 5, "5"),
    (Schema(Type.INT64, default=3), {"type": "integer", "connect.type": "int64", "default": 3}, 4, "4"),
    (Schema(Type.FLOAT64, default=1.5), {"type": "number", "connect.type": "float64", "default": 1.5}, 0.1, "0.1"),
    (data.BYTES, {"type": "string", "connect.type": "bytes"}, b"\0\1", '"AAE="'),
    (COLOR, {"enum": ["RED", None], "title": "Color"}, "RED", '"RED"'),
    (
        data.decimal(2),
        {
            "type": "string",
            "connect.type": "bytes",
            "title": data.DECIMAL,
            "connect.version": 1,
            "connect.parameters": {"scale": "2"},
        },
        Decimal("123.45"),
        '"MDk="',
    ),
    (
        data.struct({"b": data.STRING, "a": data.OPTIONAL_INT8}, "a.S"),
        {
            "type": "object",
            "properties": {
                "b": {"type": "string", "connect.index": 0},
                "a": {"oneOf": [NULL, INT8], "connect.index": 1},
            },
            "title": "a.S",
        },
        {"b": "x", "a": None},
        '{"b":"x","a":null}',
    ),
    (
        data.mapping(data.STRING, data.INT8),
        {"type": "object", "connect.type": "map", "additionalProperties": INT8},
        {"k": 1},
        '{"k":1}',
    ),
    (
        data.mapping(data.INT8, data.STRING),
        {
            "type": "array",
            "connect.type": "map",
            "items": {
                "type": "object",
                "properties": {"key": {**INT8, "connect.index": 0}, "value": {"type": "string", "connect.index": 1}},
            },
        },
        {1: "v"},
        '[{"key":1,"value":"v"}]',
    ),
    (
        data.struct(
            {f"{UNION}.field.0": data.OPTIONAL_INT8, f"{UNION}.field.1": data.OPTIONAL_STRING}, UNION, optional=True
        ),
        {"oneOf": [NULL, {**INT8, "connect.index": 0}, {"type": "string", "connect.index": 1}]},
        {f"{UNION}.field.1": "x"},
        '"x"',
    ),
)
READ: tuple[tuple[Any, Any, Schema, Any], ...] = (
    ({"type": "integer"}, 5, data.INT64, 5),
    ({"type": "integer"}, 5.0, data.INT64, 5),
    ({"type": "number"}, 5, data.FLOAT64, 5.0),
    ({"type": ["string", "null"]}, None, data.OPTIONAL_STRING, None),
    ({"anyOf": [{"type": "boolean"}, NULL]}, True, data.OPTIONAL_BOOLEAN, True),
    ({"oneOf": [{"type": "string"}]}, "x", data.STRING, "x"),
    ({"type": "string", "const": "x"}, "x", Schema(Type.STRING, parameters={ENUM: "", f"{ENUM}.x": "x"}), "x"),
    ({"type": "integer", "enum": [1, 2]}, 1, data.INT64, 1),
    ({"type": "array", "items": {"type": "string"}}, ["a"], data.array(data.STRING), ["a"]),
    (
        {"allOf": [{"$ref": "#/definitions/A"}, {"properties": {"b": {"type": "string"}}}],
         "definitions": {"A": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
        {"a": 1, "b": "x", "unknown": 2},
        data.struct({"a": data.INT64, "b": data.STRING}),
        {"a": 1, "b": "x"},
    ),
    (
        {"type": "object", "properties": {"late": {"type": "string", "connect.index": 1},
                                          "early": {"type": "string", "connect.index": 0}}},
        {"late": "x"},
        data.struct({"early": data.STRING, "late": data.STRING}),
        {"early": None, "late": "x"},
    ),
)  # fmt: skip


def converter(url: str = "http://127.0.0.1:1", config: Mapping[str, str] | None = None) -> JsonSchemaConverter:
    made = JsonSchemaConverter()
    made.configure({"schema.registry.url": url, **(config or {})}, is_key=False)
    return made


@pytest.mark.parametrize(("schema", "expected", "value", "body"), WRITTEN)
def test_schemas_and_values_follow_confluents_rules(schema: Schema, expected: Any, value: Any, body: str) -> None:
    options = JsonSchemaOptions()
    written = JsonSchemaWriter(options).written(schema)
    assert written == expected
    assert dumps(encoder(schema, options)(value)) == body.encode()
    found = converter().reader_of(json.dumps(written))(body.encode(), 0)
    assert found.value == value
    if ENUM not in schema.parameters:
        assert found.schema == schema


@pytest.mark.parametrize(("schema", "value", "expected", "read"), READ)
def test_schemas_of_others_are_read(schema: Any, value: Any, expected: Schema, read: Any) -> None:
    found = converter().reader_of(json.dumps(schema))(json.dumps(value).encode(), 0)
    assert (found.schema, found.value) == (expected, read)


def test_settings_change_schemas() -> None:
    schema = data.struct({"a": data.decimal(1)}, "S")
    closed = JsonSchemaWriter(JsonSchemaOptions("NUMERIC", object_additional_properties=False)).written(schema)
    assert closed["additionalProperties"] is False
    assert closed["properties"]["a"]["type"] == "number"
    text = json.dumps(closed)
    assert converter().reader_of(text)(b'{"a":12345678901234567890.5}', 0).value["a"] == Decimal(
        "12345678901234567890.5"
    )
    text = json.dumps({"type": "object", "properties": {"a": {"type": "string"}}, "required": []})
    found = converter(config={"use.optional.for.nonrequired": "true"}).reader_of(text)(b"{}", 0)
    assert found.schema == data.struct({"a": data.OPTIONAL_STRING})
    text = json.dumps({"oneOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]})
    general = converter(config={"generalized.sum.type.support": "true"}).reader_of(text)
    assert general(b'{"x":1}', 0).value == {"connect_union_field_1": {"x": 1}}
    assert general(b'"t"', 0).value == {"connect_union_field_0": "t"}


PAIRS = {
    "type": "array",
    "connect.type": "map",
    "items": {"properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
}
DOUBLING = {
    "$ref": "#/definitions/M0",
    "definitions": {
        **{f"M{i}": {"properties": {key: {"$ref": f"#/definitions/M{i + 1}"} for key in "ab"}} for i in range(40)},
        "M40": {"type": "string"},
    },
}
ALL_OF = {
    "$ref": "#/definitions/M0",
    "definitions": {
        **{f"M{i}": {"allOf": [{"$ref": f"#/definitions/M{i + 1}"}] * 2} for i in range(40)},
        "M40": {"properties": {"x": {"type": "string"}}},
    },
}
EXACT = {
    "type": "object",
    "properties": {
        "d": {"type": "string", "connect.type": "bytes", "title": data.DECIMAL, "connect.parameters": {"scale": "2"}},
        "i": {"type": "integer"},
        "f": {"type": "number"},
    },
}
OBJECTS = {"oneOf": [{"type": "object", "properties": {each: {"type": "string"}}} for each in "ab"]}
HOSTILE: tuple[tuple[Any, bytes, str], ...] = (
    ({"type": "integer", "connect.type": "int8"}, b"128", "does not fit"),
    ({"type": "string"}, b"5", "an integer"),
    ({"type": "string"}, b"null", "Invalid null value"),
    ({"type": "string"}, b"{", "serialization error"),
    ({"type": "string"}, b"[" * 100_000, "serialization error"),
    ({"type": "object", "properties": {}}, b"[]", "Invalid type for STRUCT"),
    ({"oneOf": [{"type": "string"}, {"type": "boolean"}]}, b"5", "matching oneof"),
    (PAIRS, b'[{"key":1}]', "key and value"),
    ({}, b"1", "no type"),
    ({"$ref": "#/absent"}, b"1", "does not exist"),
    ({"$ref": "#"}, b"1", "contains itself"),
    ({"type": "object", "properties": {"n": {"$ref": "#"}}}, b"{}", "contains itself"),
    ({"type": {}}, b"1", "Unsupported schema type"),
    ({"type": "array"}, b"[]", "items"),
    (DOUBLING, b"{}", "more than"),
    (ALL_OF, b"{}", "more than"),
    ({"type": "integer"}, b"1e100", "does not fit"),
    ({"type": "object", "properties": {"a": {"type": "number"}}}, b'{"a":%s}' % (b"1" * 400), "serialization error"),
    (EXACT, b'{"i":1e100}', "does not fit"),
    (EXACT, b'{"i":1,"f":%s}' % (b"1" * 400), "does not fit"),
)  # fmt: skip


@pytest.mark.parametrize(("schema", "body", "reason"), HOSTILE)
def test_hostile_schemas_and_values_are_refused(schema: Any, body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        converter().reader_of(json.dumps(schema))(body, 0)


def test_refused_schema_is_read_once(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = converter(registry)
    with RegistryClient({"schema.registry.url": registry}) as client:
        text = json.dumps({"type": "object", "properties": {"n": {"$ref": "#"}}})
        number = client.register_schema("endless-value", RegistrySchema(SchemaType.JSON, text))
    reads: list[int] = []
    read = JsonSchemaReader.read
    monkeypatch.setattr(JsonSchemaReader, "read", lambda reader: (reads.append(1), read(reader))[1])
    for _ in range(3):
        with pytest.raises(DataError, match="contains itself"):
            made.to_connect("endless", b"\0" + number.to_bytes(4, "big") + b"{}")
    made.close()
    assert len(reads) == 1


@pytest.mark.parametrize("body", [b"{}", b'{"c":"x"}'])
def test_object_without_a_common_name_is_the_first_struct_of_a_union(body: bytes) -> None:
    found = converter().reader_of(json.dumps(OBJECTS))(body, 0)
    assert found.value == {f"{UNION}.field.0": {"a": None}}


@pytest.mark.parametrize("value", [{"d": Decimal("1.25"), "s": None}, {"d": None, "s": "text"}])
def test_union_with_a_numeric_decimal_is_read(value: Any) -> None:
    options = JsonSchemaOptions(decimal_format="NUMERIC")
    members = {"d": replace(data.decimal(2), optional=True), "s": data.OPTIONAL_STRING}
    schema = data.struct(members, UNION)
    text = json.dumps(JsonSchemaWriter(options).written(schema))
    read = converter(config={"decimal.format": "numeric"}).reader_of(text)
    found = read(dumps(encoder(schema, options)(value)), 0).value
    assert list(found.values()) == [each for each in value.values() if each is not None]


def test_optional_field_with_one_type_in_a_list_stays_optional() -> None:
    text = json.dumps({"type": "object", "properties": {"a": {"type": ["string"]}}})
    found = converter(config={"use.optional.for.nonrequired": "true"}).reader_of(text)(b"{}", 0)
    assert found.schema == data.struct({"a": data.OPTIONAL_STRING})


@pytest.mark.parametrize("name", ["preserve.additional.properties", "json.indent.output", "rule.executors"])
def test_settings_that_would_change_values_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match=rf"configuration {name}: .*; remove the setting"):
        converter(config={name: "true"})
    converter(config={name: "false", "json.fail.unknown.properties": "true", "json.oneof.for.nullables": "false"})


def test_values_are_validated_on_demand_by_draft_7_or_the_draft_of_the_schema(registry: str) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
              "properties": {"a": {"type": "string", "maxLength": 3}}, "dependentRequired": {"a": ["b"]}}  # fmt: skip
    with RegistryClient({"schema.registry.url": registry}) as client:
        number = client.register_schema("drafts-value", RegistrySchema(SchemaType.JSON, json.dumps(schema)))
    prefix = b"\0" + number.to_bytes(4, "big")

    def reads(body: bytes, **settings: str) -> bool:
        made = converter(registry, {name.replace("_", "."): each for name, each in settings.items()})
        try:
            made.to_connect("drafts", prefix + body)
        except DataError:
            return False
        finally:
            made.close()
        return True

    assert reads(b'{"a":"long"}')
    assert not reads(b'{"a":"long"}', json_fail_invalid_schema="true")
    # Draft 7 ignores `dependentRequired`.
    assert not reads(b'{"a":"x"}', json_fail_invalid_schema="true")
    assert reads(b'{"a":"x"}', json_fail_invalid_schema="true", ignore_modern_dialects="true")


def test_unknown_decimal_format_is_refused() -> None:
    with pytest.raises(SettingError, match=r"numerik.*decimal\.format"):
        converter(config={"decimal.format": "numerik"})


LEAVES = {
    data.INT8: st.integers(-128, 127),
    data.OPTIONAL_STRING: st.none() | st.text(max_size=4),
    data.FLOAT64: st.floats(allow_nan=False, allow_infinity=False),
    data.BYTES: st.binary(max_size=4),
    data.date(): st.dates(),
    data.decimal(2): st.integers(-(10**9), 10**9).map(lambda each: Decimal(each).scaleb(-2)),
}


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Schema, Any]:
    kind = draw(st.sampled_from(["leaf", "array", "map", "struct"])) if depth else "leaf"
    if kind == "leaf":
        schema = draw(st.sampled_from(sorted(LEAVES, key=str)))
        return schema, draw(LEAVES[schema])
    if kind == "struct":
        fields = {f"f{index}": draw(typed_values(depth - 1)) for index in range(draw(st.integers(0, 3)))}
        schema = data.struct({name: each[0] for name, each in fields.items()}, "S")
        return schema, {name: each[1] for name, each in fields.items()}
    inner, value = draw(typed_values(depth - 1))
    if kind == "array":
        return data.array(inner), [value]
    return data.mapping(data.INT32, inner), {draw(st.integers(0, 9)): value}


@settings(max_examples=40, deadline=None)
@given(typed_values())
def test_what_is_written_is_read(drawn: tuple[Schema, Any]) -> None:
    schema, value = drawn
    options = JsonSchemaOptions()
    text = json.dumps(JsonSchemaWriter(options).written(schema))
    found = READER.reader_of(text)(dumps(encoder(schema, options)(value)), 0)
    assert (found.schema, found.value) == (schema, value)


READER = converter()


def test_record_goes_through_the_registry_and_comes_back(registry: str) -> None:
    schema, value = TEXT.to_connect("t", json.dumps({"schema": ROW, "payload": VALUES}).encode())
    made = converter(registry)
    written = made.from_connect("rows", schema, value)
    assert written is not None
    found = made.to_connect("rows", written)
    assert found.value == {**value, "od": "z", "e": value["e"]}
    assert made.from_connect("rows", found.schema, found.value) == written
    with pytest.raises(DataError, match=r"topic rows.*int32|topic rows.*INT32"):
        made.from_connect("rows", schema, {**value, "i": "text"})
    for body in (b"", b"\1", written[:5], written[:-1], written[:5] + b"\xff", b"\0\0\0\xff\xff1"):
        with pytest.raises(DataError, match=r"topic rows.*cannot be deserialized"):
            made.to_connect("rows", body)
    made.close()


def test_confluents_python_client_reads_the_values(registry: str) -> None:
    made = converter(registry)
    schema = data.struct({"id": data.INT32, "day": data.date(), "at": data.timestamp(optional=True)}, "shop.Order")
    at = datetime(2024, 1, 1, tzinfo=UTC)
    written = made.from_connect("shop", schema, {"id": 5, "day": date(1970, 1, 2), "at": at})
    with SchemaRegistryClient({"url": registry}) as client:
        text = client.get_latest_version("shop-value").schema.schema_str
        reader = JSONDeserializer(text, schema_registry_client=client)
        found = reader(written, SerializationContext("shop", MessageField.VALUE))
    assert found == {"id": 5, "day": 1, "at": 1_704_067_200_000}
    made.close()
