"""Records of v3 with schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Ottla
from tests.registry.stand_in import StandIn
from tests.rest.conftest import RunningProxy, StartProxy
from tests.rest.v3.test_records import answers, records_url

ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]})
ITEM = json.dumps({"title": "item", "type": "object", "properties": {"n": {"type": "integer"}}})
PROTO = 'syntax = "proto3"; message Item { int64 n = 1; }'


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture
def proxy(ottla: Ottla, registry: StandIn, start_proxy: StartProxy) -> RunningProxy:
    settings = {"schema.registry.url": registry.url, "schema.registry.max.retries": 0}
    return start_proxy({"bootstrap.servers": ottla.bootstrap, **settings})


def produce(proxy: RunningProxy, topic: str, *values: dict[str, Any]) -> list[dict[str, Any]]:
    body = "".join(json.dumps({"value": value}) for value in values)
    return answers(proxy.http.post(records_url(proxy, topic), content=body).text)


def test_schema_by_text_then_latest_id_and_version(ottla: Ottla, registry: StandIn, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    (first,) = produce(proxy, topic, {"type": "AVRO", "schema": ORDER, "data": {"id": 1}})
    value = first["value"]
    assert (value["type"], value["subject"], value["schema_version"]) == ("AVRO", f"{topic}-value", 1)
    rows = produce(
        proxy,
        topic,
        {"data": {"id": 1}},
        {"schema_id": value["schema_id"], "data": {"id": 1}},
        {"schema_version": 1, "data": {"id": 1}},
        {"subject": f"{topic}-value", "data": {"id": 1}},
        {"schema_version": 1, "data": None},
    )
    assert [row["error_code"] for row in rows] == [200] * 5
    assert {row["value"]["schema_id"] for row in rows} == {value["schema_id"]}
    found = [each.value for each in ottla.records(topic)]
    assert found == [b"\0" + value["schema_id"].to_bytes(4, "big") + b"\x02"] * 5 + [None]


@pytest.mark.parametrize(("kind", "schema"), [("JSONSCHEMA", ITEM), ("PROTOBUF", PROTO)])
def test_other_types(ottla: Ottla, proxy: RunningProxy, kind: str, schema: str) -> None:
    (row,) = produce(proxy, ottla.topic(), {"type": kind, "schema": schema, "data": {"n": 1}})
    assert (row["error_code"], row["value"]["type"]) == (200, kind)


@pytest.mark.parametrize(
    ("name", "schema", "kind", "subject"),
    [
        ("RECORD_NAME", ORDER, "AVRO", "shop.Order"),
        ("TOPIC_RECORD_NAME", ORDER, "AVRO", "{topic}-shop.Order"),
        ("RECORD_NAME", ITEM, "JSONSCHEMA", "item"),
    ],
)
def test_subject_follows_the_strategy(
    ottla: Ottla, proxy: RunningProxy, name: str, schema: str, kind: str, subject: str
) -> None:
    topic, data = ottla.topic(), {"id": 1} if kind == "AVRO" else {"n": 1}
    given = {"subject_name_strategy": name, "type": kind, "schema": schema, "data": data}
    (row,) = produce(proxy, topic, given)
    assert (row["error_code"], row["value"]["subject"]) == (200, subject.format(topic=topic))


@pytest.mark.parametrize(
    ("value", "error_code"),
    [
        ({"data": 1}, 400),  # the subject has no schema
        ({"schema_id": 77, "data": 1}, 400),
        ({"schema_id": 77, "schema_version": 1, "data": 1}, 400),
        ({"type": "AVRO", "schema_id": 1, "data": 1}, 400),
        ({"type": "AVRO", "data": 1}, 400),
        ({"schema": ORDER, "data": 1}, 400),
        ({"type": "AVRO", "schema": ORDER, "data": {"id": "x"}}, 400),
        ({"type": "AVRO", "schema": "{", "data": 1}, 42205),
        ({"type": "AVRO", "schema": ORDER, "subject_name_strategy": "OTHER", "data": 1}, 400),
        ({"subject_name_strategy": "RECORD_NAME", "data": 1}, 400),
        ({"type": "PROTOBUF", "schema": PROTO, "subject_name_strategy": "RECORD_NAME", "data": 1}, 400),
        ({"type": 1, "data": 1}, 400),
    ],
)
def test_wrong_value_is_an_error_of_its_record(
    ottla: Ottla, proxy: RunningProxy, value: dict[str, Any], error_code: int
) -> None:
    topic = ottla.topic()
    wrong, right = produce(proxy, topic, value, {"type": "STRING", "data": "x"})
    assert (wrong["error_code"], right["error_code"]) == (error_code, 200), wrong
    assert [each.value for each in ottla.records(topic)] == [b"x"]


def test_without_a_registry(ottla: Ottla, start_proxy: StartProxy) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap})
    (row,) = produce(proxy, ottla.topic(), {"type": "AVRO", "schema": ORDER, "data": {"id": 1}})
    assert row["error_code"] == 415
    assert "schema.registry.url" in row["message"]
