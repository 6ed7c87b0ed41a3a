"""confluent-kafka's Protobuf serializers and Ottla's, in both directions, with the same registry."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.clients.serializers import ProtobufDeserializer, ProtobufSerializer, SerializationContext
from ottla.schemas.model import Reference, Schema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf
from tests.registry.stand_in import StandIn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
    from confluent_kafka import serialization
    from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer, protobuf

UNIT = 'syntax = "proto3"; package a; message Unit { string name = 1; }'
TEXT = """\
syntax = "proto3";
package shop;
import "a/unit.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  a.Unit unit = 2;
  google.protobuf.Timestamp at = 3;
  map<string, int32> counts = 4;
  message Line { string article = 1; message Price { int64 cents = 1; } }
}
message Refund { int64 id = 1; }
"""
CONTEXT = SerializationContext("orders", "value")
THEIRS = serialization.SerializationContext("orders", serialization.MessageField.VALUE)
CONF = {"use.deprecated.format": False}


@pytest.fixture
def client(stand_in: StandIn) -> Iterator[Any]:
    with SchemaRegistryClient({"url": stand_in.url}) as made:
        yield made


def generated(name: str) -> Any:
    """The class that protoc would generate."""
    referenced = {"a/unit.proto": Schema(SchemaType.PROTOBUF, UNIT)}
    schema = Schema(SchemaType.PROTOBUF, TEXT, (Reference("a/unit.proto", "a/unit.proto", 1),))
    return parse_protobuf(schema, referenced).message_class(name)


@pytest.mark.parametrize("name", ["shop.Order", "shop.Refund", "shop.Order.Line", "shop.Order.Line.Price"])
def test_bytes_and_subjects_are_equal(stand_in: StandIn, client: Any, name: str) -> None:
    message_class = generated(name)
    message = message_class()
    if name == "shop.Order":
        message = message_class(id=5, unit={"name": "g"}, counts={"a": 1})
    ours = ProtobufSerializer(message_class, schema_registry_url=stand_in.url)(message, CONTEXT)
    subjects = {subject: len(rows) for subject, rows in stand_in.subjects.items()}
    theirs = protobuf.ProtobufSerializer(message_class, client, CONF)(message, THEIRS)
    assert ours == theirs
    assert {subject: len(rows) for subject, rows in stand_in.subjects.items()} == subjects
    assert protobuf.ProtobufDeserializer(message_class, CONF, client)(ours, THEIRS) == message
    read = ProtobufDeserializer(schema_registry_url=stand_in.url)(theirs, CONTEXT)
    assert read.DESCRIPTOR.full_name == name
    assert read.SerializeToString() == message.SerializeToString()


def test_schema_ids_in_headers(stand_in: StandIn, client: Any) -> None:
    stand_in.guids = True
    message_class = generated("shop.Refund")
    ours: list[tuple[str, bytes]] = []
    theirs: list[tuple[str, bytes]] = []
    header = {"schema.id.serializer": "HeaderSchemaIdSerializer"}
    serializer = ProtobufSerializer(message_class, schema_registry_url=stand_in.url, config=header)
    written = serializer(message_class(id=3), CONTEXT._replace(headers=ours))
    configuration = {**CONF, "schema.id.serializer": header_schema_id_serializer}
    context = serialization.SerializationContext("orders", serialization.MessageField.VALUE, theirs)
    assert protobuf.ProtobufSerializer(message_class, client, configuration)(message_class(id=3), context) == written
    assert [(name, bytes(value)) for name, value in ours] == [(name, bytes(value)) for name, value in theirs]
    read = ProtobufDeserializer(schema_registry_url=stand_in.url)(written, CONTEXT._replace(headers=theirs))
    assert (read.DESCRIPTOR.full_name, read.id) == ("shop.Refund", 3)
