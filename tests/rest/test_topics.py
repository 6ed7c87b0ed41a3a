"""GET of topics, partitions, offsets and brokers."""

from __future__ import annotations

import pytest

from ottla.testing import Ottla

from .conftest import V2, RunningProxy


def test_topics_are_listed(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    answer = proxy.http.get("/topics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == V2
    assert topic in answer.json()


def test_topic_has_settings_and_partitions(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=2, cleanup_policy="compact")
    body = proxy.http.get(f"/topics/{topic}").json()
    assert body["name"] == topic
    assert body["configs"]["cleanup.policy"] == "compact"
    leader = body["partitions"][0]["leader"]
    assert body["partitions"] == [
        {"partition": n, "leader": leader, "replicas": [{"broker": leader, "leader": True, "in_sync": True}]}
        for n in range(2)
    ]
    assert proxy.http.get(f"/topics/{topic}/partitions").json() == body["partitions"]
    assert proxy.http.get(f"/topics/{topic}/partitions/1").json() == body["partitions"][1]


def test_offsets_of_a_partition(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "a", "b")
    body = proxy.http.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert body == {"beginning_offset": 0, "end_offset": 2}


def test_brokers_and_root(proxy: RunningProxy) -> None:
    assert len(proxy.http.get("/brokers").json()["brokers"]) == 1
    assert proxy.http.get("/").json() == {}


@pytest.mark.parametrize("path", ["", "/partitions", "/partitions/0", "/partitions/0/offsets"])
def test_missing_topic_is_40401(proxy: RunningProxy, path: str) -> None:
    answer = proxy.http.get(f"/topics/no-such-topic{path}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)


@pytest.mark.parametrize("partition", ["1", "-1", "x", "00", "99999999999999999999"])
def test_missing_partition_is_40402(ottla: Ottla, proxy: RunningProxy, partition: str) -> None:
    answer = proxy.http.get(f"/topics/{ottla.topic()}/partitions/{partition}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


def test_unknown_paths_and_methods(proxy: RunningProxy) -> None:
    assert proxy.http.get("/nothing").json()["error_code"] == 404
    answer = proxy.http.delete("/topics")
    assert (answer.status_code, answer.json()["error_code"]) == (405, 405)


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/vnd.kafka.v2+json", 200),
        ("application/vnd.kafka+json", 200),
        ("application/json", 200),
        ("*/*", 200),
        ("application/*;q=0.5, text/html", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
    ],
)
def test_accept_header(proxy: RunningProxy, accept: str, status: int) -> None:
    assert proxy.http.get("/brokers", headers={"accept": accept}).status_code == status
