"""Formats with schemas: produce and consume through a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.clients import Consumer
from ottla.clients.serializers import AvroDeserializer, ProtobufDeserializer
from ottla.testing import Ottla
from tests.registry.stand_in import StandIn

from .conftest import RunningProxy, StartProxy
from .test_consumers import Instance, code

AVRO = "application/vnd.kafka.avro.v2+json"
JSON_SCHEMA = "application/vnd.kafka.jsonschema.v2+json"
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "raw", "type": "bytes"},
        ],
    }
)
ROW = {"id": 7, "note": {"string": "fast"}, "day": 19000, "raw": "\u00ff"}
PROTOBUF = "application/vnd.kafka.protobuf.v2+json"
PROTO = """
syntax = "proto3";
message Item { int64 item_id = 1; repeated string tags = 2; Kind kind = 3; }
enum Kind { SMALL = 0; BIG = 1; }
"""
SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def proxy(ottla: Ottla, registry: StandIn, start_proxy: StartProxy) -> RunningProxy:
    settings = {"schema.registry.url": registry.url, "schema.registry.max.retries": 0}
    return start_proxy({"bootstrap.servers": ottla.bootstrap, **settings})


def produce(proxy: RunningProxy, topic: str, content_type: str, body: Any) -> Any:
    return proxy.http.post(f"/topics/{topic}", json=body, headers={"content-type": content_type})


def test_avro_by_schema_and_by_id(ottla: Ottla, registry: StandIn, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    answer = produce(
        proxy, topic, AVRO,
        {"key_schema": '"string"', "value_schema": ORDER, "records": [{"key": "k", "value": ROW}, {"value": None}]},
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    ids = answer.json()["key_schema_id"], answer.json()["value_schema_id"]
    assert sorted(registry.subjects) == [f"{topic}-key", f"{topic}-value"]
    again = produce(proxy, topic, AVRO, {"value_schema_id": ids[1], "records": [{"value": {**ROW, "note": None}}]})
    assert (again.status_code, again.json()["value_schema_id"]) == (200, ids[1])

    deserializer = AvroDeserializer(schema_registry_url=registry.url)
    with Consumer(bootstrap_servers=ottla.bootstrap, value_deserializer=deserializer) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        found = [record.value for _ in range(3) for record in consumer.poll(2.0)]
    assert [None if each is None else (each["id"], each["note"], each["raw"]) for each in found] == [
        (7, "fast", b"\xff"), None, (7, None, b"\xff"),
    ]  # fmt: skip

    instance = Instance(proxy.http, format="avro", fetch_min_bytes=1)
    instance.assign(topic)
    rows = instance.read(3)
    assert [(row["key"], row["value"]) for row in rows] == [("k", ROW), (None, None), (None, {**ROW, "note": None})]


def test_json_schema(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    body = {"value_schema": SCHEMA, "records": [{"value": {"n": 1, "more": [1.5]}}]}
    assert produce(proxy, topic, JSON_SCHEMA, body).status_code == 200
    instance = Instance(proxy.http, format="jsonschema", fetch_min_bytes=1)
    instance.assign(topic)
    assert instance.read(1)[0]["value"] == {"n": 1, "more": [1.5]}
    body["records"] = [{"value": {"n": "one"}}]
    assert code(produce(proxy, topic, JSON_SCHEMA, body)) == (400, 400)


def test_protobuf(ottla: Ottla, registry: StandIn, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    rows = [{"itemId": "7", "tags": ["a"], "kind": "BIG"}, {"itemId": "0", "tags": [], "kind": "SMALL"}]
    body = {"value_schema": PROTO, "records": [{"value": row} for row in rows]}
    answer = produce(proxy, topic, PROTOBUF, body)
    assert answer.status_code == 200, answer.text
    deserializer = ProtobufDeserializer(schema_registry_url=registry.url)
    with Consumer(bootstrap_servers=ottla.bootstrap, value_deserializer=deserializer) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek_to_beginning()
        assert [record.value.item_id for record in consumer.poll(5.0)] == [7, 0]
    instance = Instance(proxy.http, format="protobuf", fetch_min_bytes=1)
    instance.assign(topic)
    assert [row["value"] for row in instance.read(2)] == rows
    body["records"] = [{"value": {"itemId": "x"}}]
    assert code(produce(proxy, topic, PROTOBUF, body)) == (400, 400)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"value_schema": ORDER, "records": [{"key": "k", "value": ROW}]}, (422, 42201)),
        ({"records": [{"value": ROW}]}, (422, 42202)),
        ({"value_schema": ORDER, "records": [{"value": {"id": "x"}}]}, (400, 400)),
        ({"value_schema": ORDER, "records": [{"value": {**ROW, "note": "untagged"}}]}, (400, 400)),
        ({"value_schema_id": 99999, "records": [{"value": ROW}]}, (422, 42207)),
        ({"value_schema_id": "x", "records": [{"value": ROW}]}, (400, 400)),
        ({"value_schema": 5, "records": [{"value": ROW}]}, (400, 400)),
        ({"value_schema": '{"type": "none"}', "records": [{"value": ROW}]}, (422, 42205)),
    ],
)
def test_invalid_requests(ottla: Ottla, proxy: RunningProxy, body: Any, expected: tuple[int, int]) -> None:
    topic = ottla.topic()
    assert code(produce(proxy, topic, AVRO, body)) == expected
    assert not ottla.records(topic)


def test_registry_without_answer_is_40801(ottla: Ottla, registry: StandIn, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    registry.faults[:] = [None] * 10
    body = {"value_schema": ORDER, "records": [{"value": ROW}]}
    assert code(produce(proxy, topic, AVRO, body)) == (408, 40801)


def test_record_with_an_unknown_schema_is_40801(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, b"\0\0\x01\0\0abc", b"no prefix")
    instance = Instance(proxy.http, format="avro", fetch_min_bytes=1)
    instance.assign(topic)
    for offset in range(2):
        position = {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
        assert instance.post("/positions", position).status_code == 204
        answer = instance.records(timeout=2000)
        assert code(answer) == (408, 40801)
        assert f"offset {offset}" in answer.json()["message"]


def test_formats_with_schemas_need_a_registry(ottla: Ottla, start_proxy: StartProxy) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap})
    body = {"value_schema": ORDER, "records": [{"value": ROW}]}
    assert code(produce(proxy, ottla.topic(), AVRO, body)) == (415, 415)


def test_credentials_are_forwarded_only_by_choice(ottla: Ottla, registry: StandIn, start_proxy: StartProxy) -> None:
    body = {"value_schema": ORDER, "records": [{"value": ROW}]}
    for choice, expected in (("false", {None}), ("true", {"Basic YW5uOnB3"})):
        registry.authorizations.clear()
        settings = {"schema.registry.url": registry.url, "schema.registry.forward.credentials": choice}
        proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, **settings})
        with proxy.as_user("ann", "pw") as ann:
            topic = ottla.topic()
            answer = ann.post(f"/topics/{topic}", json=body, headers={"content-type": AVRO})
        assert answer.status_code == 200
        assert set(registry.authorizations) == expected
