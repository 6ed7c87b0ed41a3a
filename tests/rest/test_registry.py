"""The proxy with Ottla's registry, beside the serializers of confluent-kafka."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Ottla
from tests.registry_process import RegistryProcess

from .conftest import RunningProxy, StartProxy
from .test_consumers import Instance, code
from .test_schemas import AVRO, JSON_SCHEMA, ORDER, PROTO, PROTOBUF, ROW, SCHEMA, produce

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext


@pytest.fixture
def url(ottla: Ottla, tmp_path: Path) -> Iterator[str]:
    with RegistryProcess(tmp_path / "registry", ottla.bootstrap) as running:
        yield running.url


@pytest.fixture
def proxy(ottla: Ottla, url: str, start_proxy: StartProxy) -> RunningProxy:
    return start_proxy({"bootstrap.servers": ottla.bootstrap, "schema.registry.url": url})


def test_avro_of_the_proxy_and_of_confluents_serializers_is_the_same(
    ottla: Ottla, url: str, proxy: RunningProxy
) -> None:
    topic = ottla.topic()
    context = SerializationContext(topic, MessageField.VALUE)
    assert produce(proxy, topic, AVRO, {"value_schema": ORDER, "records": [{"value": ROW}]}).status_code == 200
    (written,) = (record.value for record in ottla.records(topic))
    with SchemaRegistryClient({"url": url}) as client:
        value = AvroDeserializer(client)(written, context)
        serialize = AvroSerializer(client, ORDER)
        assert serialize(value, context) == written
        assert (value["id"], value["note"], value["raw"]) == (7, "fast", b"\xff")
        ottla.produce(topic, serialize({**value, "id": 8, "note": None}, context))
    instance = Instance(proxy.http, format="avro", fetch_min_bytes=1)
    instance.assign(topic)
    assert [row["value"] for row in instance.read(2)] == [ROW, {**ROW, "id": 8, "note": None}]


def test_other_formats(ottla: Ottla, proxy: RunningProxy) -> None:
    for content_type, schema, value in ((JSON_SCHEMA, SCHEMA, {"n": 1}), (PROTOBUF, PROTO, {"itemId": "5"})):
        topic = ottla.topic()
        body = {"value_schema": schema, "records": [{"value": value}]}
        answer = produce(proxy, topic, content_type, body)
        assert answer.status_code == 200, answer.text
        instance = Instance(proxy.http, format=content_type.split(".")[2], fetch_min_bytes=1)
        instance.assign(topic)
        (row,) = instance.read(1)
        assert row["value"].items() >= value.items()


def test_incompatible_schema_is_42207(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    body = {"value_schema": '"string"', "records": [{"value": "x"}]}
    assert produce(proxy, topic, AVRO, body).status_code == 200
    body = {"value_schema": '"int"', "records": [{"value": 1}]}
    assert code(produce(proxy, topic, AVRO, body)) == (422, 42207)
