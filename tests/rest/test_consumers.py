"""Consumer instances: life, subscriptions, assignments, positions, committed offsets, reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ottla.testing import Ottla

from .conftest import BINARY, JSON, V2, RunningProxy, StartProxy, b64

EARLIEST = {"auto.offset.reset": "earliest"}


class Instance:
    """One consumer instance of a client."""

    def __init__(self, http: httpx.Client, group: str = "readers", **settings: Any) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.http = http
        self.format = given.get("format", "binary")
        self.created = http.post(f"/consumers/{group}", json={**EARLIEST, **given}, headers={"content-type": V2})
        assert self.created.status_code == 200, self.created.text
        self.url = self.created.json()["base_uri"]

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(self.url + path, json=body, headers={"content-type": V2})

    def get(self, path: str, body: Any = None) -> httpx.Response:
        return self.http.request("GET", self.url + path, json=body, headers={"accept": V2})

    def records(self, **query: Any) -> httpx.Response:
        accept = {"accept": f"application/vnd.kafka.{self.format}.v2+json"}
        return self.http.get(f"{self.url}/records", params=query, headers=accept)

    def read(self, count: int) -> list[Any]:
        """Read at least `count` records, with as many requests as that takes."""
        found: list[Any] = []
        for _ in range(30):
            answer = self.records(timeout=1000)
            assert answer.status_code == 200, answer.text
            found += answer.json()
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} records after 30 reads")

    def assign(self, topic: str, *partitions: int) -> None:
        rows = [{"topic": topic, "partition": partition} for partition in partitions or (0,)]
        assert self.post("/assignments", {"partitions": rows}).status_code == 204


def code(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["error_code"]


def test_life_of_an_instance(proxy: RunningProxy) -> None:
    instance = Instance(proxy.http, name="one")
    assert instance.created.json() == {
        "instance_id": "one",
        "base_uri": f"{proxy.url}/consumers/readers/instances/one",
    }
    again = proxy.http.post("/consumers/readers", json={"name": "one"}, headers={"content-type": V2})
    assert code(again) == (409, 40902)
    assert proxy.http.delete(instance.url).status_code == 204
    assert code(proxy.http.delete(instance.url)) == (404, 40403)
    assert Instance(proxy.http, name="one").created.status_code == 200
    assert Instance(proxy.http).created.json()["instance_id"].startswith("rest-consumer-")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"format": "xml"}, (422, 422)),
        ({"auto.offset.reset": "sometimes"}, (422, 42204)),
        ({"auto.commit.enable": "perhaps"}, (422, 42204)),
        ({"fetch.min.bytes": -2}, (422, 40001)),
        ({"fetch.min.bytes": 10_000_001}, (422, 40001)),
        ({"fetch.min.bytes": "x"}, (400, 400)),
        ({"no.such.setting": 1}, (422, 422)),
        ({"name": 5}, (400, 400)),
        ([], (400, 400)),
    ],
)
def test_invalid_instances(proxy: RunningProxy, body: Any, expected: tuple[int, int]) -> None:
    if body == []:
        body = [1]
    assert code(proxy.http.post("/consumers/readers", json=body, headers={"content-type": V2})) == expected


def test_subscribed_instance_reads_all_records_once(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=3)
    ottla.produce(topic, *[(f"k{n}", f"v{n}") for n in range(50)])
    instance = Instance(proxy.http)
    assert instance.get("/subscription").json() == {"topics": []}
    assert instance.post("/subscription", {"topics": [topic]}).status_code == 204
    assert instance.get("/subscription").json() == {"topics": [topic]}
    rows = instance.read(50)
    assert sorted(row["value"] for row in rows) == sorted(b64(f"v{n}") for n in range(50))
    assert {row["topic"] for row in rows} == {topic}
    for partition in range(3):
        offsets = [row["offset"] for row in rows if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    found = instance.get("/assignments").json()["partitions"]
    assert sorted(row["partition"] for row in found) == [0, 1, 2]
    assert proxy.http.delete(f"{instance.url}/subscription").status_code == 204
    assert instance.get("/subscription").json() == {"topics": []}


def test_pattern_subscription(ottla: Ottla, proxy: RunningProxy) -> None:
    name = ottla.topic()
    ottla.topic(f"{name}-one")
    ottla.topic(f"{name}-two")
    ottla.produce(f"{name}-one", "1")
    ottla.produce(f"{name}-two", "2")
    instance = Instance(proxy.http)
    assert instance.post("/subscription", {"topic_pattern": f"{name}-.*"}).status_code == 204
    assert {row["topic"] for row in instance.read(2)} == {f"{name}-one", f"{name}-two"}
    assert set(instance.get("/subscription").json()["topics"]) == {f"{name}-one", f"{name}-two"}
    assert code(instance.post("/subscription", {"topic_pattern": "("})) == (422, 422)


def test_invalid_subscriptions(ottla: Ottla, proxy: RunningProxy) -> None:
    instance = Instance(proxy.http)
    assert code(instance.post("/subscription", {})) == (409, 40903)
    assert code(instance.post("/subscription", {"topics": ["a"], "topic_pattern": "b"})) == (409, 40903)
    assert code(instance.post("/subscription", {"topics": "a"})) == (422, 422)
    assert code(instance.post("/subscription", {"topic_pattern": ["a"]})) == (422, 422)
    assert code(instance.post("/subscription", {"topic": "a"})) == (422, 422)
    topic = ottla.topic()
    assert instance.post("/subscription", {"topics": [topic]}).status_code == 204
    assigned = instance.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    assert code(assigned) == (409, 40903)
    other = Instance(proxy.http)
    other.assign(topic)
    assert code(other.post("/subscription", {"topics": [topic]})) == (409, 40903)


def test_positions(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *map(str, range(10)))
    instance = Instance(proxy.http, fetch_min_bytes=1)
    partition = {"topic": topic, "partition": 0}
    assert code(instance.post("/positions", {"offsets": [{**partition, "offset": 1}]})) == (409, 40903)
    assert code(instance.post("/positions/end", {"partitions": [partition]})) == (409, 40903)
    instance.assign(topic)
    assert instance.post("/positions", {"offsets": [{**partition, "offset": 7}]}).status_code == 204
    assert [row["offset"] for row in instance.read(3)] == [7, 8, 9]
    assert instance.post("/positions/beginning", {"partitions": [partition]}).status_code == 204
    assert [row["offset"] for row in instance.read(10)] == list(range(10))
    assert instance.post("/positions/end", {"partitions": [partition]}).status_code == 204
    assert instance.records(timeout=200).json() == []
    since = {"timestamps": [{**partition, "timestamp": "1999-12-31T23:59:59.5Z"}]}
    assert instance.post("/positions", since).status_code == 204
    assert len(instance.read(10)) == 10
    bad = {"timestamps": [{**partition, "timestamp": "yesterday"}]}
    assert code(instance.post("/positions", bad)) == (400, 400)


def test_commits_are_of_answered_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *map(str, range(10)))
    partition = {"topic": topic, "partition": 0}
    instance = Instance(proxy.http, auto_commit_enable="false")
    instance.assign(topic)
    assert instance.get("/offsets", {"partitions": [partition]}).json() == {"offsets": []}
    assert len(instance.records(max_bytes=4).json()) == 3  # three records of one byte; the others stay in the proxy
    answer = instance.post("/offsets", None)
    assert (answer.status_code, answer.json()) == (200, [])
    expected = {"offsets": [{**partition, "offset": 3, "metadata": ""}]}
    assert instance.get("/offsets", {"partitions": [partition]}).json() == expected
    given = {"offsets": [{**partition, "offset": 7, "metadata": "mine"}]}
    assert instance.post("/offsets", given).status_code == 200
    expected = {"offsets": [{**partition, "offset": 8, "metadata": "mine"}]}
    assert instance.get("/offsets", {"partitions": [partition]}).json() == expected
    assert code(instance.get("/offsets")) == (404, 40402)
    assert code(instance.post("/offsets", {"offsets": [{"topic": topic}]})) == (422, 422)


def test_auto_commit_covers_answered_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *map(str, range(10)))
    instance = Instance(proxy.http, "committers")
    instance.assign(topic)
    assert len(instance.records(max_bytes=6).json()) == 5
    assert proxy.http.delete(instance.url).status_code == 204
    assert ottla.group("committers").positions == {(topic, 0): 5}


def test_formats_of_reads(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, ('{"k": 1}', '{"v": [1.50, "é", null]}'))
    instance = Instance(proxy.http, format="json", fetch_min_bytes=1)
    instance.assign(topic)
    row = {"topic": topic, "key": {"k": 1}, "value": {"v": [1.5, "é", None]}, "partition": 0, "offset": 0}
    assert instance.read(1) == [row]
    for accept in (BINARY, V2, "*/*"):
        answer = proxy.http.get(f"{instance.url}/records", headers={"accept": accept})
        assert code(answer) == (406, 40601)
    assert code(proxy.http.get(f"{instance.url}/records", headers={"accept": "text/html"})) == (406, 406)
    other = Instance(proxy.http)
    assert code(proxy.http.get(f"{other.url}/records", headers={"accept": JSON})) == (406, 40601)


def test_record_of_another_format_does_not_hide_the_records_before_it(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "1", "no JSON", "3")
    instance = Instance(proxy.http, format="json")
    instance.assign(topic)
    assert [row["value"] for row in instance.read(1)] == [1]
    for _ in range(2):
        answer = instance.records()
        assert code(answer) == (408, 40801)
        assert f"{topic}-0 at offset 1" in answer.json()["message"]
    assert instance.post("/positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 2}]}).status_code == 204
    assert [row["value"] for row in instance.read(1)] == [3]


def test_sizes_of_reads(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *["x" * 100] * 10)
    instance = Instance(proxy.http, consumer_request_timeout_ms=5000)
    instance.assign(topic)
    assert [len(instance.records(max_bytes=size).json()) for size in (100, 101, 350)] == [0, 1, 3]
    assert len(instance.read(6)) == 6
    assert code(instance.records(timeout="soon")) == (400, 400)


def test_reads_at_the_same_time_share_the_records(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    instance = Instance(proxy.http)
    instance.assign(topic)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(instance.records(timeout=900).json())) for _ in range(4)]
    for thread in threads:
        thread.start()
    ottla.produce(topic, *map(str, range(20)))
    for thread in threads:
        thread.join(30)
    found += instance.records(timeout=500).json()
    assert sorted(row["offset"] for row in found) == list(range(20))


def test_deleted_instance_ends_its_read(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    instance = Instance(proxy.http, consumer_request_timeout_ms=30_000)
    instance.assign(topic)
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(instance.records()))
    thread.start()
    other = httpx.Client(base_url=proxy.url)
    assert other.delete(instance.url).status_code == 204
    other.close()
    thread.join(20)
    assert not thread.is_alive()
    assert answers[0].status_code in {200, 404}


def test_idle_instance_ends_and_leaves_its_group(ottla: Ottla, start_proxy: StartProxy) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "consumer.instance.timeout.ms": 1000})
    topic = ottla.topic()
    instance = Instance(proxy.http, "idlers")
    instance.post("/subscription", {"topics": [topic]})
    instance.records(timeout=3000)
    ottla.wait_until(lambda: code_of(instance) == 404, timeout_s=20)
    ottla.wait_until(lambda: not ottla.group("idlers").members, timeout_s=20)


def code_of(instance: Instance) -> int:
    """The status of the instance, without a request to it, which would keep it alive: another instance of its name."""
    url = f"{instance.url.rsplit('/instances/')[0]}"
    name = instance.created.json()["instance_id"]
    answer = instance.http.post(url, json={"name": name}, headers={"content-type": V2})
    if answer.status_code == 200:
        instance.http.delete(answer.json()["base_uri"])
        return 404
    return 200


def test_numbers_of_instances_are_limited(ottla: Ottla, start_proxy: StartProxy) -> None:
    limits = {"consumer.instances.max": 3, "consumer.instances.per.user.max": 2}
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, **limits})
    first, _ = Instance(proxy.http), Instance(proxy.http)
    create: Callable[[], httpx.Response] = lambda: proxy.http.post("/consumers/readers", json={})  # noqa: E731
    answer = create()
    assert code(answer) == (429, 42901)
    assert answer.headers["retry-after"]
    proxy.http.delete(first.url)
    assert create().status_code == 200


def test_missing_instance_is_40403(proxy: RunningProxy) -> None:
    url = "/consumers/readers/instances/none"
    for method, path in (
        ("POST", "/subscription"), ("GET", "/subscription"), ("DELETE", "/subscription"), ("POST", "/assignments"),
        ("GET", "/assignments"), ("POST", "/positions"), ("POST", "/positions/beginning"), ("POST", "/positions/end"),
        ("POST", "/offsets"), ("GET", "/offsets"), ("GET", "/records"), ("DELETE", ""),
    ):  # fmt: skip
        answer = proxy.http.request(method, url + path, json={})
        assert code(answer) == (404, 40403), (method, path)
