"""Serializers of Confluent's Java clients and of franz-go (Go), and Ottla's, in both directions with one registry."""

from __future__ import annotations

import json
import subprocess

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.serializers import AvroDeserializer, AvroSerializer
from tests.clients.support import unique
from tests.conftest import RunningBroker
from tests.peers.cache import FRANZ, in_ci, missing_for_confluent, missing_for_go
from tests.peers.confluent_schemas import java

ID = {"name": "id", "type": "long"}
NULLABLE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    name = unique("foreign")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def values_of(broker: RunningBroker, registry_url: str, topic: str, key: object = None) -> list[tuple[object, object]]:
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=key,
        value_deserializer=AvroDeserializer(schema_registry_url=registry_url),
    ) as consumer:
        consumer.assign([(topic, 0)])
        found: list[tuple[object, object]] = []
        for _ in range(100):
            found += [(each.key, each.value) for each in consumer.poll(0.2)]
            if len(found) == 3:
                break
    return found


def story(words: list[str], feed: str = "") -> list[str]:
    done = subprocess.run(words, input=feed, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.jvm
def test_java(broker: RunningBroker, registry_url: str, topic: str) -> None:
    missing = missing_for_confluent()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    place = [broker.bootstrap, registry_url, topic]
    story(java("SerializerStory", "produce", *place, record(ID, NULLABLE)))
    found = values_of(broker, registry_url, topic, AvroDeserializer(schema_registry_url=registry_url))
    assert found == [
        ("key 0", {"id": 0, "note": "note 0"}),
        ("key 1", {"id": 1, "note": None}),
        ("key 2", {"id": 2, "note": "note 2"}),
    ]
    ours = unique("ours")
    with Producer(
        bootstrap_servers=broker.bootstrap,
        key_serializer=AvroSerializer('"string"', schema_registry_url=registry_url),
        value_serializer=AvroSerializer(record(ID, NULLABLE), schema_registry_url=registry_url),
    ) as producer:
        for i in range(3):
            producer.send(ours, {"id": i, "note": None if i else "first"}, key=f"k{i}", partition=0)
    printed = story(java("SerializerStory", "consume", broker.bootstrap, registry_url, ours))
    assert printed == ['k0 {"id": 0, "note": "first"}', 'k1 {"id": 1, "note": null}', 'k2 {"id": 2, "note": null}']


def test_go(broker: RunningBroker, registry_url: str, topic: str) -> None:
    missing = missing_for_go()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    schema = record(ID, {"name": "note", "type": "string"})
    ours = unique("ours")
    serializer = AvroSerializer(schema, schema_registry_url=registry_url)
    with Producer(bootstrap_servers=broker.bootstrap, value_serializer=serializer) as producer:
        for i in range(3):
            producer.send(ours, {"id": -i, "note": f"é{i}"}, partition=0)
    given = {
        "bootstrap": broker.bootstrap, "registry": registry_url, "topic": topic, "from": ours, "schema": schema,
    }  # fmt: skip
    assert story([str(FRANZ / "franz")], json.dumps(given)) == ["0 é0", "-1 é1", "-2 é2", "done"]
    assert [value for _, value in values_of(broker, registry_url, topic)] == [
        {"id": i, "note": f"note {i}"} for i in range(3)
    ]
