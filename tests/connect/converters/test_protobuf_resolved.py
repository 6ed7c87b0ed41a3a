"""The protobuf converter writes with the schema that the subject has: by names, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from ottla.connect import data
from ottla.connect.converters.protobuf import ProtobufConverter
from ottla.connect.converters.protobuf_names import ENUM, TAG, UNION
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.registry_client import RegistryClient
from ottla.schemas.model import Schema as RegistrySchema
from ottla.schemas.model import SchemaType

COLOR = Schema(Type.STRING, name="Color", parameters={ENUM: "Color", f"{ENUM}.RED": "0", f"{ENUM}.BLUE": "7"})
CHOICE = data.struct(
    {"a": Schema(Type.INT32, optional=True, parameters={TAG: "13"}),
     "b": Schema(Type.STRING, optional=True, parameters={TAG: "14"})},
    f"{UNION}.choice",
    optional=True,
)  # fmt: skip
ORDER = data.struct({"name": data.OPTIONAL_STRING, "id": data.INT64}, "Order")


def converter(url: str, config: Mapping[str, str]) -> ProtobufConverter:
    made = ProtobufConverter()
    made.configure({"schema.registry.url": url, "auto.register.schemas": "false", **config}, is_key=False)
    return made


def registered(url: str, topic: str, text: str, kind: SchemaType = SchemaType.PROTOBUF) -> int:
    with RegistryClient({"schema.registry.url": url}) as client:
        return client.register_schema(f"{topic}-value", RegistrySchema(kind, f'syntax = "proto3"; {text}'))


def written(url: str, topic: str, schema: Schema, value: Any, config: Mapping[str, str] | None = None) -> Any:
    """Return the value that a reader finds for a value that is written with the latest schema."""
    made = converter(url, {"use.latest.version": "true"} if config is None else config)
    try:
        body = made.from_connect(topic, schema, value)
        assert body is not None
        return made.to_connect(topic, body).value
    finally:
        made.close()


def test_fields_have_the_numbers_of_the_latest_schema(registry: str) -> None:
    value = {"name": "coat", "id": 5}
    registered(registry, "orders", "message Order { int64 id = 1; string name = 2; }")
    assert written(registry, "orders", ORDER, value) == value
    assert written(registry, "orders", ORDER, {"name": None, "id": 5}) == {"name": "", "id": 5}


def test_fields_have_the_numbers_of_the_schema_with_the_id(registry: str) -> None:
    number = registered(registry, "by_id", "message Other {} message Order { int32 id = 8; optional string name = 9; }")
    value = {"name": "coat", "id": 5}
    config = {"use.schema.id": str(number)}
    assert written(registry, "by_id", ORDER, value, config) == value
    assert written(registry, "by_id", ORDER, {"name": None, "id": 0}, config) == {"name": None, "id": 0}
    with pytest.raises(DataError, match="Invalid value of field 'id'"):
        written(registry, "by_id", ORDER, {"name": "", "id": 1 << 31}, config)


def test_nested_messages_maps_enums_and_oneofs_have_the_numbers_of_the_latest_schema(registry: str) -> None:
    inner = data.struct({"x": data.INT32, "y": data.INT32}, "Inner")
    schema = data.struct(
        {
            "inner": inner, "many": data.array(inner), "names": data.mapping(data.STRING, data.INT32),
            "inners": data.mapping(data.STRING, inner), "color": COLOR, "choice_0": CHOICE, "day": data.date(),
        },
        "p.All",
    )  # fmt: skip
    text = """package p; import "google/type/date.proto"; message All {
      message Place { int32 y = 1; int64 x = 2; int32 new = 3; }
      enum Color { RED = 0; GREEN = 1; BLUE = 7; }
      google.type.Date day = 1; Place inner = 2; repeated Place many = 3; map<string, int64> names = 4;
      map<string, Place> inners = 5; Color color = 6; oneof choice { string b = 7; int32 a = 8; } }"""
    registered(registry, "all", text)
    point = {"x": 1, "y": 2}
    value = {
        "inner": point, "many": [point], "names": {"a": 3}, "inners": {"k": point}, "color": "BLUE",
        "choice_0": {"b": "text"}, "day": date(2024, 2, 29),
    }  # fmt: skip
    read = {**point, "new": 0}
    expected = {**value, "inner": read, "many": [read], "inners": {"k": read}}
    assert written(registry, "all", schema, value) == expected


REFUSED: tuple[tuple[str, Schema, str], ...] = (
    ("message Order { int64 id = 1; }", ORDER, "field 'name' is not in the schema"),
    ("message Order { string id = 1; string name = 2; }", ORDER, "field 'id' has another type"),
    ("message Order { int64 id = 1; bytes name = 2; }", ORDER, "field 'name' has another type"),
    ("message Order { repeated int64 id = 1; string name = 2; }", ORDER, "field 'id' is repeated in only one"),
    ("message Order { oneof o { int64 id = 1; string name = 2; } }", ORDER, "is a member of the oneof o"),
    ("message Another { int64 id = 1; string name = 2; }", ORDER, "no message Order"),
    (
        "message S { enum Color { RED = 0; BLUE = 2; } Color c = 1; }",
        data.struct({"c": COLOR}, "S"),
        "field 'c' has the value BLUE = 7",
    ),
    (
        'import "google/protobuf/duration.proto"; message S { google.protobuf.Duration t = 1; }',
        data.struct({"t": data.timestamp()}, "S"),
        r"field 't' is a google.protobuf.Timestamp.*Duration",
    ),
    (
        "message S { message In { string x = 1; } repeated In in = 1; }",
        data.struct({"in": data.array(data.struct({"x": data.INT32}, "In"))}, "S"),
        r"field 'in\.x' has another type",
    ),
    ("message S { float x = 1; }", data.struct({"x": data.FLOAT64}, "S"), "field 'x' has another type"),
)


@pytest.mark.parametrize(("text", "schema", "reason"), REFUSED)
def test_schema_that_would_lose_or_change_a_value_is_refused(
    registry: str, text: str, schema: Schema, reason: str
) -> None:
    topic = f"refused{REFUSED.index((text, schema, reason))}"
    registered(registry, topic, text)
    with pytest.raises(DataError, match=rf"topic {topic}.*{reason}"):
        written(registry, topic, schema, {"id": 1, "name": "x"})


def test_schema_of_another_format_is_refused(registry: str) -> None:
    with RegistryClient({"schema.registry.url": registry}) as client:
        number = client.register_schema("avro-value", RegistrySchema(SchemaType.AVRO, '"string"'))
    with pytest.raises(DataError, match="topic avro"):
        written(registry, "avro", ORDER, {"id": 1}, {"use.schema.id": str(number)})
