"""confluent-kafka's serializers and Ottla's, in both directions, with the same registry."""

import json
import warnings

import pytest

from ottla.clients.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SerializationContext,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
    from confluent_kafka import serialization
    from confluent_kafka.schema_registry import SchemaRegistryClient, avro, json_schema

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
JSON = json.dumps({"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}})
VALUES = [{"id": 1, "note": None, "tags": []}, {"id": -(2**60), "note": "é", "tags": ["a", "b"]}]
CONTEXT = SerializationContext("orders", "value")
THEIRS = serialization.SerializationContext("orders", serialization.MessageField.VALUE)


@pytest.fixture
def client(registry_url):
    with SchemaRegistryClient({"url": registry_url}) as made:
        yield made


@pytest.mark.parametrize("value", VALUES)
def test_avro(registry_url, client, value):
    ours = AvroSerializer(AVRO, schema_registry_url=registry_url)(value, CONTEXT)
    theirs = avro.AvroSerializer(client, AVRO)(value, THEIRS)
    assert ours == theirs
    assert avro.AvroDeserializer(client)(ours, THEIRS) == value
    assert AvroDeserializer(schema_registry_url=registry_url)(theirs, THEIRS) == value


def test_json_schema(registry_url, client):
    context = SerializationContext("documents", "value")
    their_context = serialization.SerializationContext("documents", serialization.MessageField.VALUE)
    ours = JsonSchemaSerializer(JSON, schema_registry_url=registry_url)({"id": 1}, context)
    theirs = json_schema.JSONSerializer(JSON, client)({"id": 1}, their_context)
    assert ours[:5] == theirs[:5]
    assert json_schema.JSONDeserializer(JSON, schema_registry_client=client)(ours, their_context) == {"id": 1}
    assert JsonSchemaDeserializer(schema_registry_url=registry_url)(theirs, context) == {"id": 1}


def test_schema_guid_in_a_header(registry_url, client):
    headers = []
    ours = AvroSerializer(AVRO, schema_registry_url=registry_url, schema_id_serializer="HeaderSchemaIdSerializer")(
        VALUES[1], SerializationContext("orders", "value", headers)
    )
    theirs = serialization.SerializationContext("orders", serialization.MessageField.VALUE, headers)
    assert avro.AvroDeserializer(client)(ours, theirs) == VALUES[1]
