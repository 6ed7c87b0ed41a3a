"""Protobuf serializers against a registry on real HTTP, with generated and with dynamic classes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients import DeserializationFailed, SerializationFailed
from ottla.clients.serializers import ProtobufDeserializer, ProtobufSerializer
from ottla.clients.serializers.base import InvalidValue
from ottla.clients.serializers.protobuf import path_of, read_path
from ottla.schemas.model import Reference, Schema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf
from tests.registry.stand_in import StandIn

ORDER = """\
syntax = "proto3";
package shop;
enum Kind { RETAIL = 0; WHOLESALE = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  map<string, Line> by_name = 5;
  Kind kind = 6;
  bytes raw = 7;
  message Line { string article = 1; Price price = 2; message Price { int64 cents = 1; } }
}
message Refund { int64 id = 1; }
"""
VALUE = {
    "id": 7,
    "lines": [{"article": "pen", "price": {"cents": 120}}, {"article": "ink"}],
    "counts": {"pen": 2},
    "kind": "WHOLESALE",
    "raw": b"\0\xff",
}
AS_DICT = {**VALUE, "by_name": {}}


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


def settings(registry: StandIn, **more: object) -> dict[str, Any]:
    return {"schema.registry.url": registry.url, "retries.wait.ms": 1, **more}


def generated(name: str, text: str = ORDER, referenced: dict[str, Schema] | None = None) -> Any:
    """The class that protoc would generate."""
    references = tuple(Reference(path, path, 1) for path in referenced or {})
    return parse_protobuf(Schema(SchemaType.PROTOBUF, text, references), referenced or {}).message_class(name)


def test_dictionaries_are_written_and_read_by_the_schema_alone(registry: StandIn) -> None:
    written = ProtobufSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    assert written is not None
    assert written[:6] == b"\0\0\0\0\1\0"
    read = ProtobufDeserializer(config=settings(registry))(written, topic="orders")
    assert (read.DESCRIPTOR.full_name, read.id, read.lines[0].price.cents) == ("shop.Order", 7, 120)
    plain = ProtobufDeserializer(config=settings(registry), from_dict=lambda value: value)
    assert plain(written, topic="orders") == AS_DICT
    assert list(registry.subjects) == ["orders-value"]


def test_generated_classes(registry: StandIn) -> None:
    order = generated("shop.Order")
    serializer = ProtobufSerializer(order, config=settings(registry))
    message = order(id=5, note="x")
    written = serializer(message, topic="orders")
    assert ProtobufDeserializer(order, config=settings(registry))(written, topic="orders") == message
    assert serializer({"id": 5, "note": "x"}, topic="orders") == written
    registered = registry.subjects["orders-value"][0]
    assert (registered["schemaType"], base64.b64decode(registered["schema"])[:1]) == ("PROTOBUF", b"\n")
    with pytest.raises(DeserializationFailed):
        ProtobufDeserializer(order, config=settings(registry))(b"\0\0\0\0\1\0\xff", topic="orders")


@pytest.mark.parametrize(
    ("name", "path"),
    [("shop.Order", b"\0"), ("shop.Refund", b"\2\2"), ("shop.Order.Line", b"\4\0\0"), ("shop.Order.Line.Price", None)],
)
def test_each_message_of_the_file_has_its_path(registry: StandIn, name: str, path: bytes | None) -> None:
    message_class = generated(name)
    written = ProtobufSerializer(ORDER, config=settings(registry))(message_class(), topic="orders")
    assert written is not None
    assert written[5:] == (path or b"\6\0\0\0")
    read = ProtobufDeserializer(config=settings(registry))(written, topic="orders")
    assert read.DESCRIPTOR.full_name == name


def test_name_of_the_message_selects_the_class_of_dictionaries(registry: StandIn) -> None:
    serializer = ProtobufSerializer(ORDER, message="shop.Refund", config=settings(registry))
    written = serializer({"id": 1}, topic="orders")
    assert written == b"\0\0\0\0\1\2\2\x08\1"


def test_imports_are_registered_before_the_schema(registry: StandIn) -> None:
    referenced = {
        "a/price.proto": Schema(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; import "a/unit.proto"; package a; message Price { Unit unit = 1; }',
            (Reference("a/unit.proto", "a/unit.proto", 1),),
        ),
        "a/unit.proto": Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; package a; message Unit { string name = 1; }'),
    }
    text = """syntax = "proto3"; import "a/price.proto"; import "google/protobuf/timestamp.proto";
    message Order { a.Price price = 1; google.protobuf.Timestamp at = 2; }"""
    order = generated("Order", text, referenced)
    written = ProtobufSerializer(order, config=settings(registry))(order(price={"unit": {"name": "g"}}), topic="orders")
    assert list(registry.subjects) == ["a/unit.proto", "a/price.proto", "orders-value"]
    references = registry.subjects["orders-value"][0]["references"]
    assert references == [{"name": "a/price.proto", "subject": "a/price.proto", "version": 1}]
    read = ProtobufDeserializer(config=settings(registry))(written, topic="orders")
    assert read.price.unit.name == "g"


def test_subjects_of_imports_follow_their_strategy(registry: StandIn) -> None:
    referenced = {"a/b.proto": Schema(SchemaType.PROTOBUF, 'syntax = "proto3"; package a; message B {}')}
    order = generated("Order", 'syntax = "proto3"; import "a/b.proto"; message Order { a.B b = 1; }', referenced)
    strategy = {"reference.subject.name.strategy": lambda path: path.replace("/", ".")}
    ProtobufSerializer(order, config=settings(registry, **strategy))(order(), topic="orders")
    assert list(registry.subjects) == ["a.b.proto", "orders-value"]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("RecordNameStrategy", "shop.Order"), ("TopicRecordNameStrategy", "orders-shop.Order")],
)
def test_subject_strategies_use_the_name_of_the_message(registry: StandIn, strategy: str, subject: str) -> None:
    config = settings(registry, **{"subject.name.strategy": strategy})
    ProtobufSerializer(ORDER, config=config)({"id": 1}, topic="orders")
    ProtobufSerializer(generated("shop.Order"), config=config)({"id": 1}, topic="orders")
    assert list(registry.subjects) == [subject]


def test_reader_schema_decides_the_fields(registry: StandIn) -> None:
    written = ProtobufSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    newer = 'syntax = "proto3"; package shop; message Refund {} message Order { int64 id = 1; string extra = 20; }'
    read = ProtobufDeserializer(newer, config=settings(registry))(written, topic="orders")
    assert (read.id, read.extra, [each.name for each in read.DESCRIPTOR.fields]) == (7, "", ["id", "extra"])


def test_latest_version_is_used_as_it_is(registry: StandIn) -> None:
    ProtobufSerializer(ORDER, config=settings(registry))({"id": 1}, topic="orders")
    latest = ProtobufSerializer(config=settings(registry, **{"use.latest.version": True}))
    assert latest({"id": 2}, topic="orders") == b"\0\0\0\0\1\0\x08\2"
    by_class = ProtobufSerializer(generated("shop.Refund"), config=settings(registry, **{"use.latest.version": True}))
    assert by_class({"id": 2}, topic="orders") == b"\0\0\0\0\1\2\2\x08\2"
    assert len(registry.subjects["orders-value"]) == 1


def test_path_is_part_of_the_schema_id_in_a_header(registry: StandIn) -> None:
    registry.guids = True
    headers: list[tuple[str, bytes]] = []
    config = settings(registry, **{"schema.id.serializer": "HeaderSchemaIdSerializer"})
    serializer = ProtobufSerializer(ORDER, message="shop.Refund", config=config)
    written = serializer({"id": 3}, topic="orders", headers=headers)
    assert written == b"\x08\3"
    [(name, value)] = headers
    assert (name, len(value), value[17:]) == ("__value_schema_id", 19, b"\2\2")
    read = ProtobufDeserializer(config=settings(registry))(written, topic="orders", headers=headers)
    assert (read.DESCRIPTOR.full_name, read.id) == ("shop.Refund", 3)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"id": 1, "absent": 1}, "absent"),
        ({"note": "x", "id": "text"}, "id"),
        (5, ""),
        ({"kind": "NO"}, "kind"),
        ({"price": {"unit": {"cents": "x"}}}, "price.unit.cents"),
        ({"lines": [{"article": 5}]}, "lines"),
        ({"counts": {"a": "b"}}, "counts"),
    ],
)
def test_values_that_do_not_fit_name_their_field(registry: StandIn, value: object, field: str) -> None:
    text = ORDER.replace("bytes raw = 7;", "Price price = 8; message Price { Unit unit = 1; }")
    text += "message Unit { int64 cents = 1; }"
    with pytest.raises(SerializationFailed, match="cannot be serialized") as caught:
        ProtobufSerializer(text, config=settings(registry))(value, topic="orders")
    assert caught.value.field == field


def test_missing_required_field_is_an_error(registry: StandIn) -> None:
    with pytest.raises(SerializationFailed, match="required"):
        ProtobufSerializer("message A { required string a = 1; }", config=settings(registry))({}, topic="orders")


def test_message_of_another_file_is_an_error(registry: StandIn) -> None:
    other = generated("Other", 'syntax = "proto3"; message Other {}')
    with pytest.raises(SerializationFailed, match="the schema has no message Other"):
        ProtobufSerializer(ORDER, config=settings(registry))(other(), topic="orders")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"\2",
        b"\2\x80",
        b"\1\0",
        b"\xff\xff\xff\xff\xff\xff",
        b"\x80\x80\2\0",
        b"\2\6",
        b"\2\1",
        b"\0\x0a\5",
    ],
)
def test_corrupt_values_are_errors(registry: StandIn, body: bytes) -> None:
    ProtobufSerializer(ORDER, config=settings(registry))({"id": 1}, topic="orders")
    with pytest.raises(DeserializationFailed):
        ProtobufDeserializer(config=settings(registry))(b"\0\0\0\0\1" + body, topic="orders")


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=10))
def test_paths_are_read_back(indexes: list[int]) -> None:
    path = path_of(indexes)
    assert read_path(b"x" + path + b"rest", 1) == (tuple(indexes), 1 + len(path))


@pytest.mark.parametrize("count", [-1, 65, 2**30])
def test_path_has_a_limit(count: int) -> None:
    zigzag = count << 1 ^ count >> 31
    data = bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    with pytest.raises(InvalidValue, match="parts, which are not between 1 and 64"):
        read_path(bytes(data) + bytes([zigzag]) + bytes(100), 0)


@given(st.binary(max_size=12))
def test_arbitrary_bytes_are_a_path_or_an_error(data: bytes) -> None:
    try:
        indexes, position = read_path(data, 0)
    except InvalidValue:
        return
    assert 0 < position <= len(data)
    assert indexes


def test_normalized_schema_has_the_paths_of_its_own_messages(registry: StandIn) -> None:
    """Normalization removes the message of a map field, which is before `B` in the descriptor."""
    text = """syntax = "proto3";
    message A {
      repeated MEntry m = 1;
      message MEntry { option map_entry = true; string key = 1; int32 value = 2; }
      message B { int32 x = 1; }
    }"""
    inner = generated("A.B", text)
    written = ProtobufSerializer(inner, config=settings(registry))(inner(x=1), topic="a")
    normal = ProtobufSerializer(inner, config=settings(registry, **{"normalize.schemas": True}))(inner(x=1), topic="b")
    assert written is not None
    assert normal is not None
    assert (written[5:8], normal[5:8]) == (b"\4\0\2", b"\4\0\0")
