"""Protobuf with Ottla's registry: stock serializers of Python and Java, forms of schemas, errors and compatibility."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ottla.clients import AsyncConsumer, Producer
from ottla.clients.serializers import ProtobufDeserializer, ProtobufSerializer
from ottla.schemas.model import Reference, Schema, SchemaType
from ottla.schemas.protobuf.schema import parse_protobuf
from tests.ottla_process import ForkedOttla
from tests.peers.cache import in_ci, missing_for_confluent
from tests.peers.confluent_schemas import java
from tests.registry_process import RegistryProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
    from confluent_kafka import serialization
    from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf

MISSING = missing_for_confluent()
UNIT = 'syntax = "proto3";\npackage a;\n\nmessage Unit {\n  string name = 1;\n}\n'
ORDER = """\
syntax = "proto3";
package shop;
import "a/unit.proto";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; // the key
  a.Unit unit = 2;
  google.protobuf.Timestamp at = 3;
  map<string, int32> counts = 4;
  message Line { string article = 1; }
}
message Refund { int64 id = 1; }
"""
PLAIN = """\
syntax = "proto3";
package shop;
message Order { int64 id = 1; optional string note = 2; message Line { int32 n = 1; } }
"""


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with ForkedOttla(tmp_path_factory.mktemp("broker"), properties) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def registry(own_broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with RegistryProcess(tmp_path_factory.mktemp("registry"), own_broker) as node:
        yield node.url


def call(method: str, url: str, body: object = None) -> Any:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    return httpx.request(method, url, headers=headers, json=body, timeout=30).json()


def posted(url: str, subject: str, text: str, **more: object) -> Any:
    body = {"schemaType": "PROTOBUF", "schema": text, **more}
    return call("POST", f"{url}/subjects/{subject}/versions", body)


def generated(name: str) -> Any:
    """The class that protoc would generate."""
    schema = Schema(SchemaType.PROTOBUF, ORDER, (Reference("a/unit.proto", "a/unit.proto", 1),))
    return parse_protobuf(schema, {"a/unit.proto": Schema(SchemaType.PROTOBUF, UNIT)}).message_class(name)


def test_serializers_of_confluent_kafka(registry: str) -> None:
    order = generated("shop.Order")
    message = order(id=5, unit={"name": "g"}, counts={"a": 1})
    context = serialization.SerializationContext("python", serialization.MessageField.VALUE)
    with SchemaRegistryClient({"url": registry}) as client:
        theirs = protobuf.ProtobufSerializer(order, client, {"use.deprecated.format": False})(message, context)
    ours = ProtobufSerializer(order, schema_registry_url=registry)(message, topic="python")
    assert ours == theirs
    # A client caches the text that a registration returned, and the deserializer needs a descriptor.
    with SchemaRegistryClient({"url": registry}) as client:
        read = protobuf.ProtobufDeserializer(order, {"use.deprecated.format": False}, client)(ours, context)
    assert read == message
    read = ProtobufDeserializer(schema_registry_url=registry)(theirs, topic="python")
    assert (read.DESCRIPTOR.full_name, read.unit.name, dict(read.counts)) == ("shop.Order", "g", {"a": 1})
    # The descriptor that was sent is stored as a text.
    stored = call("GET", f"{registry}/subjects/python-value/versions/1")
    assert stored["schema"].startswith('syntax = "proto3";\npackage shop;\n\nimport "a/unit.proto";\n')
    assert stored["references"] == [{"name": "a/unit.proto", "subject": "a/unit.proto", "version": 1}]
    assert call("GET", f"{registry}/subjects/a%2Funit.proto/versions/1")["schema"] == UNIT


@pytest.mark.jvm
@pytest.mark.skipif(MISSING is not None and not in_ci(), reason=MISSING or "")
def test_serializers_of_java(registry: str) -> None:
    values = {"shop.Order": {"id": 7, "note": "é"}, "shop.Order.Line": {"n": 3}}
    ours = ProtobufSerializer(PLAIN, schema_registry_url=registry)
    questions: list[dict[str, object]] = [
        {"topic": "java", "schema": PLAIN, "message": name, "value": value} for name, value in values.items()
    ]
    for name, value in values.items():
        made = parse_protobuf(Schema(SchemaType.PROTOBUF, PLAIN), {}).message_class(name)(**value)
        data = ours(made, topic="ours")
        assert data is not None
        questions.append({"topic": "ours", "data": base64.b64encode(data).decode()})
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    finished = subprocess.run(
        java("ProtobufMessages", registry), input=lines, capture_output=True, text=True, timeout=90, check=False
    )
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(answers) == 4, finished.stderr[-2000:]
    theirs = ProtobufDeserializer(schema_registry_url=registry)
    for (name, value), written, read in zip(values.items(), answers[:2], answers[2:], strict=True):
        message = theirs(base64.b64decode(written["data"]), topic="java")
        assert message.DESCRIPTOR.full_name == name == read["message"]
        assert all(getattr(message, field) == each for field, each in value.items())
        # JSON of Protobuf has 64-bit numbers as strings.
        assert {field: str(each) for field, each in read["value"].items()} == {k: str(v) for k, v in value.items()}
    # Java sends the canonical string of its own descriptor; it is the same schema.
    assert len(call("GET", f"{registry}/subjects/java-value/versions")) == 1


def test_producer_and_asyncio_consumer(own_broker: str, registry: str) -> None:
    order = generated("shop.Order")
    with Producer(
        bootstrap_servers=own_broker, value_serializer=ProtobufSerializer(order, schema_registry_url=registry)
    ) as producer:
        for number in range(3):
            producer.send("orders", order(id=number, unit={"name": "g"}))

    async def read() -> list[Any]:
        deserializer = ProtobufDeserializer(schema_registry_url=registry)
        values: list[Any] = []
        async with AsyncConsumer(
            bootstrap_servers=own_broker, auto_offset_reset="earliest", value_deserializer=deserializer
        ) as consumer:
            consumer.assign([("orders", 0)])
            for _ in range(100):
                values += [record.value for record in await consumer.poll(0.2)]
                if len(values) >= 3:
                    break
        return values

    assert [(each.id, each.unit.name) for each in asyncio.run(read())] == [(number, "g") for number in range(3)]


def test_text_and_descriptor_are_one_schema(registry: str) -> None:
    first = posted(registry, "forms", PLAIN)
    parsed = parse_protobuf(Schema(SchemaType.PROTOBUF, PLAIN), {})
    assert call("GET", f"{registry}/schemas/ids/{first['id']}")["schema"] == parsed.canonical
    assert posted(registry, "forms", parsed.canonical)["id"] == first["id"]
    assert posted(registry, "forms", f"// a comment\n{PLAIN}")["id"] == first["id"]
    serialized = call("GET", f"{registry}/schemas/ids/{first['id']}?format=serialized")["schema"]
    assert serialized == parsed.formatted("serialized")
    assert posted(registry, "forms", serialized)["id"] == first["id"]


def test_normalized_schemas_have_one_id(registry: str) -> None:
    ids = set()
    for fields in ("string b = 2; string a = 1;", "string a = 1; string b = 2;"):
        body = {"schemaType": "PROTOBUF", "schema": f'syntax = "proto3"; message A {{ {fields} }}'}
        ids.add(call("POST", f"{registry}/subjects/normal/versions?normalize=true", body)["id"])
    assert len(ids) == 1


def test_errors_have_the_line_and_the_reason(registry: str) -> None:
    answer = posted(registry, "errors", 'syntax = "proto3";\nmessage A {\n  B b = 1;\n}')
    assert answer["error_code"] == 42201
    assert "line 3: type B of field b is not defined" in answer["message"]


def test_incompatible_schemas_are_rejected(registry: str) -> None:
    posted(registry, "compatible", 'syntax = "proto3"; message A { string a = 1; }')
    changed = 'syntax = "proto3"; message A { int32 a = 1; }'
    answer = posted(registry, "compatible", changed)
    assert str(answer["error_code"]).startswith("409")
    assert "FIELD_SCALAR_KIND_CHANGED" in answer["message"]
    body = {"schemaType": "PROTOBUF", "schema": changed}
    path = f"{registry}/compatibility/subjects/compatible/versions/latest?verbose=true"
    answer = call("POST", path, body)
    assert answer["is_compatible"] is False
    assert "Field a has the type int32 in the new schema and string in the old schema" in answer["messages"][0]
