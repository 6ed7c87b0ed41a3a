"""POST of records in the formats binary and json."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.testing import Ottla

from .conftest import BINARY, JSON, RunningProxy, b64


def produce(proxy: RunningProxy, path: str, content_type: str, body: Any) -> Any:
    return proxy.http.post(path, json=body, headers={"content-type": content_type})


def test_binary_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    records = [{"key": b64("k"), "value": b64(b"\x00\xff")}, {"value": b64("")}, {"key": b64("k"), "value": None}]
    answer = produce(proxy, f"/topics/{topic}", BINARY, {"records": records})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    rows = [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(3)]
    assert answer.json() == {"offsets": rows, "key_schema_id": None, "value_schema_id": None}
    assert [(record.key, record.value) for record in ottla.records(topic)] == [
        (b"k", b"\x00\xff"),
        (None, b""),
        (b"k", None),
    ]


def test_json_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    big = 123456789012345678901234567890
    values = [{"a": [1, 2.5, None, "é"]}, "text", 7, False, big]
    records = [{"key": {"id": 1}, "value": value} for value in values]
    assert produce(proxy, f"/topics/{topic}", JSON, {"records": records}).status_code == 200
    assert [record.json for record in ottla.records(topic)] == values
    assert ottla.records(topic)[0].key == b'{"id":1}'


def test_partitions_of_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=3)
    records = [{"value": 1, "partition": 2}, {"value": 2, "partition": 0}]
    rows = produce(proxy, f"/topics/{topic}", JSON, {"records": records}).json()["offsets"]
    assert [(row["partition"], row["offset"]) for row in rows] == [(2, 0), (0, 0)]
    rows = produce(proxy, f"/topics/{topic}/partitions/1", JSON, {"records": [{"value": 3}]}).json()["offsets"]
    assert [(row["partition"], row["offset"]) for row in rows] == [(1, 0)]


def test_failure_of_one_record_does_not_stop_the_others(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    records = [{"value": 1}, {"value": 2, "partition": 7}, {"value": "x" * 2_000_000}, {"value": 4}]
    answer = produce(proxy, f"/topics/{topic}", JSON, {"records": records})
    assert answer.status_code == 200
    assert [row["error_code"] for row in answer.json()["offsets"]] == [None, 50003, 50002, None]
    assert [row["offset"] for row in answer.json()["offsets"]] == [0, None, None, 1]
    assert [record.json for record in ottla.records(topic)] == [1, 4]


@pytest.mark.parametrize(
    ("body", "status", "error_code"),
    [
        ({"records": []}, 422, 422),
        ({}, 422, 422),
        ([], 400, 400),
        ({"records": {}}, 400, 400),
        ({"records": [1]}, 400, 400),
        ({"records": [{"value": "!"}]}, 400, 400),
        ({"records": [{"value": 5}]}, 400, 400),
        ({"records": [{"value": "", "partition": "x"}]}, 400, 400),
        ({"records": [{"value": "", "partition": -1}]}, 422, 422),
        ({"records": [{"value": "", "offset": 1}]}, 422, 422),
        ({"records": [{"value": ""}], "topic": "x"}, 422, 422),
    ],
)
def test_invalid_bodies(ottla: Ottla, proxy: RunningProxy, body: Any, status: int, error_code: int) -> None:
    topic = ottla.topic()
    answer = produce(proxy, f"/topics/{topic}", BINARY, body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, error_code)
    assert not ottla.records(topic)


def test_unknown_topic_and_partition(ottla_broker: Any, start_proxy: Any) -> None:
    broker = ottla_broker({"auto.create.topics.enable": "false"})
    proxy = start_proxy({"bootstrap.servers": broker.bootstrap, "producer.max.block.ms": 500})
    answer = produce(proxy, "/topics/no-such-topic", JSON, {"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    answer = produce(proxy, "/topics/bad name!", JSON, {"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
    for partition in ("1", "x", "-1", "9" * 30):
        answer = produce(proxy, f"/topics/{broker.topic()}/partitions/{partition}", JSON, {"records": [{"value": 1}]})
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/vnd.kafka.v2+json"])
def test_other_content_types_are_415(ottla: Ottla, proxy: RunningProxy, content_type: str) -> None:
    answer = produce(proxy, f"/topics/{ottla.topic()}", content_type, {"records": [{"value": 1}]})
    assert (answer.status_code, answer.json()["error_code"]) == (415, 415)
