"""Columns of Protobuf and JSON values against a registry on real HTTP, compared with single values."""

import datetime as dt
import json

import pyarrow as pa
import pytest

from ottla.clients import ConfigurationError
from ottla.clients.serializers import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from ottla.registry_client import Reference, RegistryClient, Schema, SchemaType
from tests.registry.stand_in import StandIn

OLD = 'syntax = "proto3"; package shop; message Order { int64 id = 1; } message Other { string x = 1; }'
NEW = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "item.proto";
message Order {
  int64 id = 1; optional string note = 2; repeated Item items = 3; map<string, int32> counts = 4;
  google.protobuf.Timestamp at = 5; Kind kind = 6; Inner inner = 7;
  message Inner { bytes raw = 1; }
  enum Kind { SMALL = 0; BIG = 1; }
}
message Other { string x = 1; }
"""
ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; uint64 price = 2; }'
JSON_OLD = json.dumps({"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}})
JSON_NEW = json.dumps(
    {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "note": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]},
            "at": {"type": "string", "format": "date-time"},
        },
    }
)


@pytest.fixture
def registry():
    with StandIn() as running:
        yield running


@pytest.fixture
def client(registry):
    with RegistryClient(url=registry.url, retries_wait_ms=1, max_retries=1) as made:
        yield made


@pytest.fixture
def new(client):
    client.register_schema("item.proto", Schema(SchemaType.PROTOBUF, ITEM))
    return Schema(SchemaType.PROTOBUF, NEW, (Reference("item.proto", "item.proto", 1),))


def binary(*values):
    return pa.array(values, pa.binary())


def test_messages_of_several_versions_become_columns_of_the_latest(client, new):
    old = ProtobufSerializer(OLD, client)({"id": 1}, topic="t")
    value = {
        "id": 2, "note": "n", "items": [{"name": "pen", "price": 2**63}], "counts": {"a": 1}, "kind": 1,
        "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "inner": {"raw": b"\xff"},
    }  # fmt: skip
    second = ProtobufSerializer(new, client)(value, topic="t")
    column, bad = ProtobufDeserializer(None, client).columns().decode(binary(old, None, second), "t")
    assert bad == []
    first, missing, last = column.to_pylist()
    assert missing is None
    assert first == {"id": 1, "note": None, "items": [], "counts": [], "at": None, "kind": "SMALL", "inner": None}
    assert last == {
        "id": 2, "note": "n", "items": [{"name": "pen", "price": 2**63}], "counts": [("a", 1)],
        "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "kind": "BIG", "inner": {"raw": b"\xff"},
    }  # fmt: skip


def test_message_at_another_place_of_its_file(client):
    serializer = ProtobufSerializer(OLD, client, message="shop.Other")
    values = binary(serializer({"x": "a"}, topic="t"), ProtobufSerializer(OLD, client)({"id": 1}, topic="t"))
    columns = ProtobufDeserializer(None, client).columns()
    column, bad = columns.decode(values, "t")
    assert column.to_pylist() == [{"x": "a"}, None]
    assert bad == [(1, "", "is a message shop.Order, not shop.Other")]
    assert columns.arrow_type == pa.struct([("x", pa.string())])


def test_invalid_messages_have_row_and_reason(client):
    good = ProtobufSerializer(OLD, client)({"id": 1}, topic="t")
    client.register_schema("other", Schema(SchemaType.JSON, "{}"))
    values = binary(good, b"x", good[:6] + b"\x08", good[:5], good[:5] + b"\x02\x20", b"\0\0\0\0\2{}", good)
    column, bad = ProtobufDeserializer(None, client).columns().decode(values, "t")
    assert [value is not None for value in column.to_pylist()] == [True, *[False] * 5, True]
    assert [row for row, _, _ in bad] == [1, 2, 3, 4, 5]
    reasons = [reason for _, _, reason in bad]
    assert reasons[0] == "does not begin with the header of Confluent's wire format"
    assert reasons[1] == "is not a message shop.Order"
    assert "ends too early" in reasons[2]
    assert "no message at [16]" in reasons[3]
    assert "of type JSON, not PROTOBUF" in reasons[4]


def test_invalid_values_before_the_first_message(client):
    good = ProtobufSerializer(OLD, client)({"id": 1}, topic="t")
    column, bad = ProtobufDeserializer(None, client).columns().decode(binary(b"x", None, good), "t")
    assert column.to_pylist() == [None, None, {"id": 1}]
    assert [row for row, _, _ in bad] == [0]


def test_recursive_message_has_no_column(client):
    text = 'syntax = "proto3"; message Node { Node next = 1; }'
    value = ProtobufSerializer(text, client)({}, topic="t")
    with pytest.raises(ConfigurationError, match="Node contains itself"):
        ProtobufDeserializer(None, client).columns().decode(binary(value), "t")


def test_json_values_become_columns_of_the_latest_version(client):
    old, new = JsonSchemaSerializer(JSON_OLD, client), JsonSchemaSerializer(JSON_NEW, client)
    first = old({"id": 1}, topic="t")
    second = new({"id": 2, "note": None, "at": "2026-01-02T00:00:00Z"}, topic="t")
    column, bad = JsonSchemaDeserializer(None, client).columns().decode(binary(first, None, second), "t")
    assert bad == []
    assert column.to_pylist() == [
        {"id": 1, "note": None, "at": None},
        None,
        {"id": 2, "note": None, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)},
    ]


@pytest.mark.parametrize("validate", [True, False])
def test_invalid_json_has_row_field_and_reason(client, validate):
    good = JsonSchemaSerializer(JSON_NEW, client)({"id": 1}, topic="t")
    prefix = good[:5]
    values = binary(good, prefix, prefix + b'{"id":"a"}', prefix + b"{", prefix + b'{"id":5,"note":"long"}')
    column, bad = JsonSchemaDeserializer(None, client, validate=validate).columns().decode(values, "t")
    too_long = validate
    last = None if too_long else {"id": 5, "note": "long", "at": None}
    assert column.to_pylist() == [{"id": 1, "note": None, "at": None}, None, None, None, last]
    assert [row for row, _, _ in bad] == [1, 2, 3, *([4] if too_long else [])]
    assert bad[0][2] == "has no JSON after its schema id"
    assert bad[1][1] == "id"
    assert "is not JSON" in bad[2][2]
    if too_long:
        assert bad[3][1] == "note"


@pytest.mark.parametrize(
    ("deserializer", "serializer", "schema"),
    [(ProtobufDeserializer, ProtobufSerializer, OLD), (JsonSchemaDeserializer, JsonSchemaSerializer, JSON_OLD)],
)
def test_registry_that_does_not_answer_makes_no_row_invalid(registry, client, deserializer, serializer, schema):
    value = serializer(schema, client)({"id": 1}, topic="t")
    columns = deserializer(None, RegistryClient(url=registry.url, retries_wait_ms=1, max_retries=0)).columns()
    registry.faults[:] = [503]
    with pytest.raises(Exception, match=r"503|injected") as caught:
        columns.decode(binary(value), "t")
    assert caught.value.retriable
    assert columns.decode(binary(value), "t")[0].to_pylist() == [{"id": 1}]
