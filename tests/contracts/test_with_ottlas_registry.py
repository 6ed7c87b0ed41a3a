"""A broker whose schema registry stores its schemas in the same broker, and the serializers of two projects."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer as ConfluentAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer as ConfluentJsonSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.clients import Admin, Producer
from ottla.clients.errors import InvalidRecord
from ottla.clients.serializers import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.registry_process import RegistryProcess

WAIT_S = 30.0
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    }
)
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; }'
VALIDATION = {"confluent.value.schema.validation": "true", "ottla.schema.validation.depth": "record"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[OttlaProcess, str]]:
    """A broker and the URL of its registry, which starts after the broker: it needs the broker's topics."""
    registry: RegistryProcess | None = None
    with contextlib.ExitStack() as stack:
        registry = RegistryProcess(tmp_path / "registry", "127.0.0.1:1")
        broker = ForkedOttla(tmp_path / "broker", TEST_PROPERTIES | {"confluent.schema.registry.url": registry.url})
        stack.enter_context(broker)
        registry._bootstrap = broker.bootstrap
        stack.enter_context(registry)
        yield broker, registry.url


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_each_format_is_checked(cluster: tuple[OttlaProcess, str], kind: str) -> None:
    broker, url = cluster
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1, config=VALIDATION)
    config = {"schema.registry.url": url}
    serializer: Any = {
        "avro": lambda: AvroSerializer(AVRO, config=config),
        "json": lambda: JsonSchemaSerializer(JSON, config=config),
        "protobuf": lambda: ProtobufSerializer(PROTOBUF, config=config),
    }[kind]()
    with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
        assert producer.send("orders", {"id": 7}).result(WAIT_S).offset == 0
    with SchemaRegistryClient({"url": url}) as client:
        field = SerializationContext("orders", MessageField.VALUE)
        values = [b"plain"]
        if kind == "avro":
            values.append(ConfluentAvroSerializer(client, AVRO)({"id": 8}, field) + b"\0")
        if kind == "json":
            values.append(ConfluentJsonSerializer(JSON, client)({"id": 8}, field)[:-1])
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            with pytest.raises(InvalidRecord, match="The value does not"):
                producer.send("orders", value).result(WAIT_S)


def test_schema_of_another_topic_is_refused(cluster: tuple[OttlaProcess, str]) -> None:
    broker, url = cluster
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for topic in ("orders", "payments"):
            admin.create_topic(topic, partitions=1, config=VALIDATION)
    with SchemaRegistryClient({"url": url}) as client:
        serializer = ConfluentAvroSerializer(client, AVRO)
        value = serializer({"id": 8}, SerializationContext("payments", MessageField.VALUE))
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        assert producer.send("payments", value).result(WAIT_S).offset == 0
        with pytest.raises(InvalidRecord, match="is not registered under the subject orders-value"):
            producer.send("orders", value).result(WAIT_S)


def test_schema_id_in_a_header_of_confluents_serializer_is_refused_with_advice(
    cluster: tuple[OttlaProcess, str],
) -> None:
    broker, url = cluster
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1, config=VALIDATION)
    headers: dict[str, bytes] = {}
    with SchemaRegistryClient({"url": url}) as client:
        config = {"schema.id.serializer": header_schema_id_serializer}
        serializer = ConfluentAvroSerializer(client, AVRO, conf=config)
        value = serializer({"id": 8}, SerializationContext("orders", MessageField.VALUE, headers))
    assert list(headers) == ["__value_schema_id"]
    with (
        Producer(bootstrap_servers=broker.bootstrap) as producer,
        pytest.raises(InvalidRecord, match=r"set value.schema.id.serializer .* to the PrefixSchemaIdSerializer"),
    ):
        producer.send("orders", value, headers=list(headers.items())).result(WAIT_S)
