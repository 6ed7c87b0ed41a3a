"""Event streams whose keys and values have schemas in a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.clients.serializers import JsonSchemaSerializer
from ottla.testing import Ottla
from tests.registry.stand_in import StandIn

from .conftest import RunningProxy
from .test_events import Stream, values
from .test_schemas import AVRO, JSON_SCHEMA, ORDER, PROTO, PROTOBUF, ROW, SCHEMA, produce
from .test_schemas import proxy as proxy  # noqa: PLC0414 - a fixture: the proxy with a registry
from .test_schemas import registry as registry  # noqa: PLC0414 - a fixture


@pytest.mark.parametrize(
    ("name", "content_type", "schema", "rows"),
    [
        ("avro", AVRO, ORDER, [ROW, {**ROW, "note": {"string": "two\nlines"}}]),
        ("jsonschema", JSON_SCHEMA, SCHEMA, [{"n": 1}, {"n": 2, "text": "two\nlines"}]),
        ("protobuf", PROTOBUF, PROTO, [{"itemId": "7", "tags": ["two\nlines"], "kind": "BIG"}]),
    ],
)
def test_values_have_the_json_of_consumers(
    ottla: Ottla, proxy: RunningProxy, name: str, content_type: str, schema: str, rows: list[Any]
) -> None:
    topic = ottla.topic()
    answer = produce(proxy, topic, content_type, {"value_schema": schema, "records": [{"value": row} for row in rows]})
    assert answer.status_code == 200, answer.text
    with Stream(proxy, topic, from_="beginning", format=name) as stream:
        assert values(stream.take(len(rows))) == rows


def test_value_of_another_format_does_not_end_the_stream(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "plain")
    produce(proxy, topic, JSON_SCHEMA, {"value_schema": SCHEMA, "records": [{"value": {"n": 1}}]})
    ottla.produce(topic, b"\0\0\0\x99\x99{}")
    produce(proxy, topic, AVRO, {"value_schema": ORDER, "records": [{"value": ROW}]})
    with Stream(proxy, topic, from_="beginning", format="avro") as stream:
        found = [event.data for event in stream.take(4)]
    assert [row["value"] for row in found] == [None, None, None, ROW]
    assert found[0]["value_base64"] == "cGxhaW4="
    assert all(row["value_base64"] for row in found[:3])


def test_keys_have_a_format_of_their_own(ottla: Ottla, proxy: RunningProxy, registry: StandIn) -> None:
    topic = ottla.topic()
    write = JsonSchemaSerializer(SCHEMA, schema_registry_url=registry.url)
    value = write({"n": 1}, topic=topic)
    assert value is not None
    # Another producer may write JSON in several lines, which would end an event.
    ottla.produce(topic, ("k", value[:5] + b'{\n  "n": 1\r\n}'))
    with Stream(proxy, topic, from_="beginning", format="jsonschema", key_format="text") as stream:
        (event,) = stream.take(1)
    assert (event.data["key"], event.data["value"]) == ("k", {"n": 1})
    for query in ({"format": "avro2"}, {"key_format": "avro2"}):
        assert proxy.http.get(f"/topics/{topic}/events", params=query).status_code == 400


def test_stream_ends_where_the_registry_does_not_answer(ottla: Ottla, proxy: RunningProxy, registry: StandIn) -> None:
    topic = ottla.topic()
    produce(proxy, topic, JSON_SCHEMA, {"value_schema": SCHEMA, "records": [{"value": {"n": 1}}]})
    produce(proxy, topic, AVRO, {"value_schema": ORDER, "records": [{"value": ROW}, {"value": ROW}]})
    other = json.dumps({"type": "string"})
    schema_id = registry.register(f"{topic}-value", {"schema": other, "schemaType": "AVRO"})["id"]
    ottla.produce(topic, b"\0" + schema_id.to_bytes(4, "big") + b"\x04ab")
    registry.faults[:] = [503] * 4
    with Stream(proxy, topic, from_="1", format="avro") as stream:
        events = stream.take(3)
    assert [event.kind for event in events] == ["message", "message", "error"]
    assert events[2].data["error_code"] == 40801
    assert events[2].id == "0:3"
    registry.faults.clear()
    with Stream(proxy, topic, events[2].id, from_="beginning", format="avro") as stream:
        assert values(stream.take(1)) == ["ab"]


def test_proxy_without_a_registry_has_no_such_stream(ottla: Ottla, start_proxy: Any) -> None:
    plain = start_proxy({"bootstrap.servers": ottla.bootstrap})
    assert plain.http.get(f"/topics/{ottla.topic()}/events", params={"format": "avro"}).status_code == 415
