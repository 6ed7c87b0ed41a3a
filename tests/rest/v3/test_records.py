"""POST of records by v3: streams and batches."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Ottla
from tests.rest.conftest import RunningProxy, StartProxy, b64
from tests.rest.v3.test_resources import cluster


def answers(text: str) -> list[dict[str, Any]]:
    """The objects of a stream."""
    return [json.loads(line) for line in text.splitlines()]


def text(data: str, **more: Any) -> dict[str, Any]:
    return {"value": {"type": "STRING", "data": data}, **more}


def records_url(proxy: RunningProxy, topic: str) -> str:
    return f"{cluster(proxy)}/topics/{topic}/records"


def test_records_of_each_format_are_written_and_answered_in_order(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=2)
    given = [
        {
            "partition_id": 1,
            "key": {"type": "BINARY", "data": b64("k")},
            "value": {"type": "JSON", "data": {"n": [1, None]}},
            "headers": [{"name": "h", "value": b64("x")}, {"name": "none"}],
            "timestamp": "2021-02-05T19:14:42Z",
        },
        text("grün", partition_id=1),
        {"partition_id": 1, "key": {"type": "STRING", "data": "only a key"}},
        {"partition_id": 1, "value": {"type": "JSON", "data": None}},
    ]
    answer = proxy.http.post(records_url(proxy, topic), content="".join(map(json.dumps, given)))
    assert answer.status_code == 200
    rows = answers(answer.text)
    assert [(row["error_code"], row["partition_id"], row["offset"]) for row in rows] == [(200, 1, n) for n in range(4)]
    assert rows[0]["timestamp"] == "2021-02-05T19:14:42.000Z"
    assert rows[0]["key"] == {"type": "BINARY", "size": 1}
    assert rows[0]["value"] == {"type": "JSON", "size": 14}
    assert "value" not in rows[2]
    found = ottla.records(topic)
    assert [(each.key, each.value) for each in found] == [
        (b"k", b'{"n":[1,null]}'),
        (None, "grün".encode()),
        (b"only a key", None),
        (None, b"null"),
    ]
    assert found[0].timestamp == 1612552482000
    assert [tuple(each) for each in found[0].headers] == [("h", b"x"), ("none", None)]


def test_wrong_record_does_not_stop_the_others(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    given = [
        text("a"),
        {"value": {"type": "BINARY", "data": "%"}},
        {"value": {"type": "STRING", "data": 1}},
        {"value": {"type": "XML", "data": ""}},
        {"value": 7},
        text("b", partition_id=9),
        text("c", partition_id=-1),
        text("d", timestamp="yesterday"),
        text("e", timestamp="2021-02-05T19:14:42"),
        text("f", headers=[{"value": ""}]),
        text("g"),
    ]
    rows = answers(proxy.http.post(records_url(proxy, topic), content="".join(map(json.dumps, given))).text)
    assert [row["error_code"] for row in rows] == [200, 400, 400, 400, 400, 40403, 40402, 400, 400, 400, 200]
    assert [each.value for each in ottla.records(topic)] == [b"a", b"g"]


def test_record_that_the_brokers_refuse_is_an_error(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(cleanup_policy="compact")
    (row,) = answers(proxy.http.post(records_url(proxy, topic), content=json.dumps(text("no key"))).text)
    assert row["error_code"] == 50002
    assert "without a key" in row["message"]


def test_unknown_topic(ottla_broker: Any, start_proxy: StartProxy) -> None:
    broker = ottla_broker({"auto.create.topics.enable": "false"})
    proxy = start_proxy({"bootstrap.servers": broker.bootstrap, "producer.max.block.ms": 300})
    answer = proxy.http.post(records_url(proxy, "none"), content=json.dumps(text("a")) * 3)
    assert [row["error_code"] for row in answers(answer.text)] == [40403] * 3


@pytest.mark.parametrize(
    ("body", "error_code"),
    [("", 42206), ("[1]", 400), ('{"value":', 400), ("\x00", 400)],
)
def test_wrong_stream_ends_with_an_error(ottla: Ottla, proxy: RunningProxy, body: str, error_code: int) -> None:
    answer = proxy.http.post(records_url(proxy, ottla.topic()), content=body)
    assert (answer.status_code, [row["error_code"] for row in answers(answer.text)]) == (200, [error_code])


def test_answers_arrive_while_the_stream_is_open(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    may_go_on = threading.Event()
    seen: list[int] = []

    def body() -> Iterator[bytes]:
        for number in range(5):
            yield json.dumps(text(str(number))).encode()
            if number == 0:
                assert may_go_on.wait(20), "no answer to the first record"

    def follow() -> None:
        while not ottla.records(topic):
            pass
        may_go_on.set()

    watcher = threading.Thread(target=follow)
    watcher.start()
    with proxy.http.stream("POST", records_url(proxy, topic), content=body()) as answer:
        seen += [json.loads(line)["offset"] for line in answer.iter_lines()]
    watcher.join(20)
    assert seen == list(range(5))


def test_stream_may_be_larger_than_the_limit_of_a_body(ottla: Ottla, start_proxy: StartProxy) -> None:
    topic = ottla.topic()
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "request.max.bytes": 10_000})
    body = json.dumps(text("x" * 1_000)) * 50
    rows = answers(proxy.http.post(records_url(proxy, topic), content=body).text)
    assert [row["offset"] for row in rows] == list(range(50))
    too_large = answers(proxy.http.post(records_url(proxy, topic), content=json.dumps(text("x" * 20_000))).text)
    assert [row["error_code"] for row in too_large] == [400]


def test_batch_lists_successes_and_failures_by_id(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    entries = [text("a", id="1"), text("b", id="2", partition_id=5), text("c", id="3")]
    answer = proxy.http.post(f"{records_url(proxy, topic)}:batch", json={"entries": entries})
    assert answer.status_code == 207
    body = answer.json()
    assert [(row["id"], row["offset"]) for row in body["successes"]] == [("1", 0), ("3", 1)]
    assert [(row["id"], row["error_code"]) for row in body["failures"]] == [("2", 40403)]


@pytest.mark.parametrize(
    ("entries", "error_code"),
    [
        ([], 42208),
        ([text("a")], 42208),
        ([text("a", id="")], 42208),
        ([text("a", id="x" * 81)], 42208),
        ([text("a", id="1"), text("b", id="1")], 42208),
        ([text("a", id=str(n)) for n in range(11)], 42208),
        ({}, 400),
    ],
)
def test_wrong_batch_writes_nothing(ottla: Ottla, proxy: RunningProxy, entries: Any, error_code: int) -> None:
    topic = ottla.topic()
    answer = proxy.http.post(f"{records_url(proxy, topic)}:batch", json={"entries": entries})
    assert answer.status_code == (422 if error_code == 42208 else 400)
    assert answer.json()["error_code"] == error_code
    assert ottla.records(topic) == []


@pytest.fixture
def secured(ottla_broker: Any) -> Any:
    """A broker where `test` is a super user, and `ann` has no rights yet."""
    return ottla_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:test",
            "connection.failed.authentication.delay.ms": "0",
        },
        security="SASL_PLAINTEXT",
        users=["test", "ann"],
    )


class Users:
    """Two users of a proxy before a secured broker, and the topic `secret`."""

    def __init__(self, broker: Any, start_proxy: StartProxy) -> None:
        settings = {"client.security.protocol": "SASL_PLAINTEXT", "producer.max.block.ms": 300}
        self.proxy = start_proxy({"bootstrap.servers": broker.bootstrap, **settings})
        self.test, self.ann = (
            self.proxy.as_user(user, str(broker.settings("ottla", user=user)["sasl.password"]))
            for user in ("test", "ann")
        )
        self.base = self.test.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
        assert self.test.post(f"{self.base}/topics", json={"topic_name": "secret"}).status_code == 201

    def produce(self, user: Any) -> int:
        """The error code of one record that the user sends."""
        answer = user.post(f"{self.base}/topics/secret/records", content=json.dumps(text("a")))
        return int(answers(answer.text)[0]["error_code"])

    def allow_ann(self, operation: str, topic: str = "secret") -> None:
        acl = {
            "resource_type": "TOPIC",
            "resource_name": topic,
            "pattern_type": "LITERAL",
            "host": "*",
            "principal": "User:ann",
            "operation": operation,
            "permission": "ALLOW",
        }
        assert self.test.post(f"{self.base}/acls", json=acl).status_code == 201


@pytest.fixture
def users(secured: Any, start_proxy: StartProxy) -> Iterator[Users]:
    users = Users(secured, start_proxy)
    yield users
    users.test.close()
    users.ann.close()


def test_users_need_the_right_to_write(users: Users) -> None:
    assert (users.produce(users.test), users.produce(users.ann)) == (200, 40301)
    assert users.ann.get(f"{users.base}/topics").json()["data"] == []
    assert users.ann.post(f"{users.base}/topics", json={"topic_name": "other"}).json()["error_code"] == 40301
    users.allow_ann("DESCRIBE")
    assert users.produce(users.ann) == 40301
    users.allow_ann("WRITE", "others")  # the broker gives her a producer id now
    assert users.produce(users.ann) == 40301
    assert [each["topic_name"] for each in users.ann.get(f"{users.base}/topics").json()["data"]] == ["secret"]
    assert users.proxy.http.get("/v3/clusters").status_code == 401


def test_user_who_got_rights_can_write(users: Users) -> None:
    users.allow_ann("DESCRIBE")
    assert {users.produce(users.ann) for _ in range(3)} == {40301}
    users.allow_ann("WRITE")
    # Brokers apply a right soon after it was granted.
    assert 200 in (users.produce(users.ann) for _ in range(20))
