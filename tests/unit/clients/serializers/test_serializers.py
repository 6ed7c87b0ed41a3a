"""Serializers and deserializers against a registry on real HTTP."""

import json
import time
from dataclasses import dataclass

import pytest

from ottla.clients import ConfigurationError, DeserializationFailed, SerializationFailed
from ottla.clients.deferred import Deferred
from ottla.clients.serializers import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SerializationContext,
    base,
)
from ottla.registry_client import Reference, RegistryClient, Schema, SchemaType
from tests.registry.stand_in import StandIn

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
    }
)
WIDER = json.dumps(
    {**json.loads(ORDER), "fields": [*json.loads(ORDER)["fields"], {"name": "note", "type": "string", "default": "-"}]}
)
JSON = json.dumps({"type": "object", "title": "Order", "properties": {"id": {"type": "integer"}}, "required": ["id"]})
VALUE = {"id": 7, "customer": "Ada"}


@pytest.fixture
def registry():
    with StandIn() as running:
        yield running


def settings(registry, **more):
    return {"schema.registry.url": registry.url, "retries.wait.ms": 1, **more}


def test_avro_value_has_confluents_prefix_and_is_read_back(registry):
    written = AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    assert written == b"\0\0\0\0\1\x0e\x06Ada"
    assert AvroDeserializer(config=settings(registry))(written, topic="orders") == VALUE
    assert list(registry.subjects) == ["orders-value"]


def test_registry_is_asked_once_for_a_topic_and_a_schema(registry):
    serializer = AvroSerializer(ORDER, config=settings(registry))
    deserializer = AvroDeserializer(config=settings(registry))
    for _ in range(3):
        deserializer(serializer(VALUE, topic="orders"), topic="orders")
    assert len(registry.requests) == 2


def test_null_is_a_tombstone(registry):
    assert AvroSerializer(ORDER, config=settings(registry))(None) is None
    assert AvroDeserializer(config=settings(registry))(None) is None


def test_context_names_topic_and_part(registry):
    serializer = AvroSerializer(ORDER, config=settings(registry))
    serializer(VALUE, SerializationContext("orders", "key"))
    serializer(VALUE, SerializationContext("orders", "value"))
    assert list(registry.subjects) == ["orders-key", "orders-value"]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
        (lambda topic, part, record: f"{topic}/{part}/{record}", "orders/value/shop.Order"),
    ],
)
def test_subject_strategies(registry, strategy, subject):
    serializer = AvroSerializer(ORDER, config=settings(registry, **{"subject.name.strategy": strategy}))
    serializer(VALUE, topic="orders")
    assert list(registry.subjects) == [subject]


def test_unknown_schema_is_not_registered_with_auto_register_off(registry):
    serializer = AvroSerializer(ORDER, config=settings(registry, auto_register_schemas=False))
    with pytest.raises(SerializationFailed, match="orders-value") as caught:
        serializer(VALUE, topic="orders")
    assert (caught.value.topic, caught.value.retriable) == ("orders", False)
    assert registry.subjects == {}


def test_latest_version_is_the_schema_of_the_writer(registry):
    with RegistryClient(url=registry.url) as client:
        client.register_schema("orders-value", Schema(SchemaType.AVRO, ORDER))
        latest = client.register_schema("orders-value", Schema(SchemaType.AVRO, WIDER))
        serializer = AvroSerializer(None, client, use_latest_version=True)
        assert serializer(VALUE, topic="orders")[1:5] == latest.to_bytes(4, "big")


def test_schema_by_id(registry):
    with RegistryClient(url=registry.url) as client:
        client.register_schema("other", Schema(SchemaType.AVRO, ORDER))
        assert AvroSerializer(None, client, use_schema_id=1)(VALUE, topic="orders")[:5] == b"\0\0\0\0\1"


def test_reader_schema_resolves_older_values(registry):
    written = AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    assert AvroDeserializer(WIDER, config=settings(registry))(written, topic="orders") == {**VALUE, "note": "-"}


def test_latest_version_as_the_reader_schema(registry):
    written = AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    AvroSerializer(WIDER, config=settings(registry))({**VALUE, "note": "x"}, topic="orders")
    deserializer = AvroDeserializer(config=settings(registry, use_latest_version=True))
    assert deserializer(written, topic="orders") == {**VALUE, "note": "-"}


def test_types_of_the_program(registry):
    @dataclass
    class Order:
        id: int
        customer: str

    serializer = AvroSerializer(ORDER, config=settings(registry), to_dict=lambda order, _: vars(order))
    deserializer = AvroDeserializer(config=settings(registry), from_dict=lambda found: Order(**found))
    assert deserializer(serializer(Order(1, "a"), topic="t"), topic="t") == Order(1, "a")


def test_value_that_does_not_fit_names_topic_subject_and_field(registry):
    with pytest.raises(SerializationFailed, match=r"orders-value.*'customer' is 5, which is not string") as caught:
        AvroSerializer(ORDER, config=settings(registry))({"id": 1, "customer": 5}, topic="orders")
    failed = caught.value
    assert (failed.topic, failed.subject, failed.field) == ("orders", "orders-value", "customer")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "0 bytes"),
        (b"\x07\0\0\0\1", "byte 7"),
        (b"\0\0\0\0\1\x0e", "ends before"),
        (b"\0\0\0\0\x09x", "not found"),
    ],
)
def test_invalid_bytes_name_the_topic(registry, data, text):
    AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    with pytest.raises(DeserializationFailed, match=text) as caught:
        AvroDeserializer(config=settings(registry))(data, topic="orders")
    assert caught.value.topic == "orders"


def test_value_of_another_type_is_rejected(registry):
    written = AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    with pytest.raises(DeserializationFailed, match="AVRO, not JSON"):
        JsonSchemaDeserializer(config=settings(registry))(written, topic="orders")


def test_unreachable_registry_is_retriable(registry):
    registry.faults = [503] * 4
    with pytest.raises(SerializationFailed) as caught:
        AvroSerializer(ORDER, config=settings(registry))(VALUE, topic="orders")
    assert caught.value.retriable


def test_json_is_validated_in_both_directions(registry):
    serializer = JsonSchemaSerializer(JSON, config=settings(registry))
    written = serializer({"id": 1}, topic="t")
    assert written == b'\0\0\0\0\1{"id":1}'
    deserializer = JsonSchemaDeserializer(config=settings(registry))
    assert deserializer(written, topic="t") == {"id": 1}
    with pytest.raises(SerializationFailed, match="'id'") as caught:
        serializer({"id": "x"}, topic="t")
    assert caught.value.field == "id"
    with pytest.raises(DeserializationFailed, match="required"):
        deserializer(b"\0\0\0\0\1{}", topic="t")
    lenient = JsonSchemaDeserializer(config=settings(registry, **{"json.fail.invalid.schema": "false"}))
    assert lenient(b"\0\0\0\0\1{}", topic="t") == {}


def test_address_in_a_json_schema_is_not_opened(registry):
    text = json.dumps({"type": "object", "properties": {"n": {"$ref": f"{registry.url}/inside.json"}}})
    serializer = JsonSchemaSerializer(text, config=settings(registry))
    with pytest.raises(SerializationFailed):
        serializer({"n": 1}, topic="t")
    assert not any("inside.json" in each for each in registry.requests)


def test_references(registry):
    item = Schema(SchemaType.AVRO, '{"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]}')
    text = '{"type": "record", "name": "shop.Cart", "fields": [{"name": "item", "type": "shop.Item"}]}'
    with RegistryClient(url=registry.url) as client:
        client.register_schema("items", item)
        cart = Schema(SchemaType.AVRO, text, (Reference("shop.Item", "items", 1),))
        written = AvroSerializer(cart, client)({"item": {"n": 3}}, topic="t")
        assert AvroDeserializer(None, client)(written, topic="t") == {"item": {"n": 3}}
        detail = Schema(SchemaType.JSON, '{"type": "integer"}')
        client.register_schema("detail", detail)
        text = '{"type": "object", "properties": {"n": {"$ref": "detail.json"}}}'
        outer = Schema(SchemaType.JSON, text, (Reference("detail.json", "detail", 1),))
        serializer = JsonSchemaSerializer(outer, client)
        assert serializer({"n": 1}, topic="u")
        with pytest.raises(SerializationFailed, match="'n'"):
            serializer({"n": "x"}, topic="u")


def test_schema_guid_in_a_header(registry):
    headers = []
    registry.guids = True
    config = settings(registry, schema_id_serializer="HeaderSchemaIdSerializer")
    serializer = AvroSerializer(ORDER, config=config)
    written = serializer(VALUE, SerializationContext("orders", "value", headers))
    assert written == b"\x0e\x06Ada"
    assert headers[0][0] == "__value_schema_id"
    assert headers[0][1][0] == 1
    assert len(headers[0][1]) == 17
    deserializer = AvroDeserializer(config=settings(registry))
    assert deserializer(written, SerializationContext("orders", "value", headers)) == VALUE


def test_asyncio_clients_load_schemas_outside_of_the_call(registry):
    serializer = AvroSerializer(ORDER, config=settings(registry)).for_client("value", deferring=True)
    with pytest.raises(Deferred) as caught:
        serializer(VALUE, topic="orders")
    assert registry.requests == []
    caught.value.resolve()
    assert serializer(VALUE, topic="orders").startswith(b"\0\0\0\0\1")


def test_deferred_failure_is_raised_by_all_calls_of_a_poll_and_tried_again_later(registry, monkeypatch):
    registry.faults = [422]
    serializer = AvroSerializer(ORDER, config=settings(registry)).for_client("value", deferring=True)
    with pytest.raises(Deferred) as caught:
        serializer(VALUE, topic="orders")
    caught.value.resolve()
    for _ in range(2):
        with pytest.raises(SerializationFailed, match="injected"):
            serializer(VALUE, topic="orders")
    now = time.monotonic()
    monkeypatch.setattr("ottla.clients.serializers.base.time.monotonic", lambda: now + base.DEFERRED_S)
    with pytest.raises(Deferred):
        serializer(VALUE, topic="orders")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "schema.registry.url is missing"),
        ({"schema.registry.url": "http://a", "auto.register.schema": True}, "auto.register.schema"),
        ({"schema.registry.url": "http://a", "subject.name.strategy": "Other"}, "TopicNameStrategy"),
        ({"schema.registry.url": "http://a", "schema.id.serializer": "x"}, "HeaderSchemaIdSerializer"),
    ],
)
def test_wrong_settings(given, text):
    with pytest.raises(ConfigurationError, match=text):
        AvroSerializer(ORDER, config=given)


def test_serializer_without_any_schema_is_rejected(registry):
    with pytest.raises(ConfigurationError, match=r"use\.latest\.version"):
        AvroSerializer(None, config=settings(registry))
