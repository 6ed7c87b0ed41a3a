"""Streams of server-sent events."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import httpx
import pytest

from ottla.testing import Ottla

from .conftest import RunningProxy, StartProxy

READ_S = 20


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


def parsed(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream, as a browser's EventSource dispatches them."""
    last_id, kind, data = "", "message", ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            last_id = value
        elif name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not line and data:
            yield Event(last_id, kind, json.loads(data))
            kind, data = "message", ""


class Stream:
    """An open stream."""

    def __init__(self, proxy: RunningProxy, topic: str, last_id: str | None = None, **query: Any) -> None:
        headers = {} if last_id is None else {"last-event-id": last_id}
        self._http = httpx.Client(base_url=proxy.url, timeout=READ_S)
        self._context = self._http.stream(
            "GET", f"/topics/{topic}/events", params={k.rstrip("_"): v for k, v in query.items()}, headers=headers
        )

    def __enter__(self) -> Self:
        self.answer = self._context.__enter__()
        self.lines = self.answer.iter_lines()
        self.events = parsed(self.lines)
        return self

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)
        self._http.close()

    def take(self, count: int) -> list[Event]:
        return [next(self.events) for _ in range(count)]


def values(events: list[Event]) -> list[Any]:
    return [event.data["value"] for event in events]


def test_tail_of_a_topic(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "old")
    with Stream(proxy, topic) as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert next(stream.lines) == "retry: 3000"
        ottla.produce(topic, ("k", "new\nline"), headers={"h": "1"})
        (event,) = stream.take(1)
    timestamp = ottla.records(topic)[1].timestamp
    assert event.id == "0:2"
    assert event.data == {
        "topic": topic, "partition": 0, "offset": 1, "timestamp": timestamp, "key": "k", "value": "new\nline",
        "headers": [{"name": "h", "value": "MQ=="}],
    }  # fmt: skip


def test_starts(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=2)
    for n in range(5):
        ottla.produce(topic, f"a{n}", partition=0)
        ottla.produce(topic, f"b{n}", partition=1)
    starts = {"beginning": 5, "3": 2, "latest-2": 2, "latest-99": 5, "1999-01-01T00:00:00Z": 5}
    for start, count in starts.items():
        with Stream(proxy, topic, from_=start) as stream:
            found = sorted(values(stream.take(2 * count)))
        assert found == [f"{name}{n}" for name in "ab" for n in range(5 - count, 5)], start
    with Stream(proxy, topic, from_="beginning", partition=1) as stream:
        assert values(stream.take(5)) == [f"b{n}" for n in range(5)]
    with Stream(proxy, topic, from_="2999-01-01T00:00:00Z") as stream:
        next(stream.lines)
        ottla.produce(topic, "new", partition=1)
        assert values(stream.take(1)) == ["new"]


def test_stream_continues_after_its_last_event(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic(partitions=3)
    ottla.produce(topic, *[(f"k{n}", str(n)) for n in range(60)])
    seen: list[Event] = []
    last_id = None
    while len(seen) < 60:
        with Stream(proxy, topic, last_id, from_="beginning") as stream:
            seen += stream.take(min(7, 60 - len(seen)))
        last_id = seen[-1].id
    positions = [(event.data["partition"], event.data["offset"]) for event in seen]
    assert len(set(positions)) == 60
    assert sorted(values(seen), key=int) == [str(n) for n in range(60)]


def test_id_before_the_first_event_has_no_gap(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, "old")
    with Stream(proxy, topic) as stream:
        lines = [next(stream.lines) for _ in range(2)]
    ottla.produce(topic, "between")
    with Stream(proxy, topic, lines[1].partition(": ")[2]) as stream:
        assert values(stream.take(1)) == ["between"]


def test_formats(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, '{"a":\n1.0}', b"\xff\xfe", None)
    for format_, expected in {
        "text": [('{"a":\n1.0}', None), (None, "//4="), (None, None)],
        "json": [({"a": 1.0}, None), (None, "//4="), (None, None)],
        "binary": [("eyJhIjoKMS4wfQ==", None), ("//4=", None), (None, None)],
    }.items():
        with Stream(proxy, topic, from_="beginning", format=format_) as stream:
            rows = [event.data for event in stream.take(3)]
        assert [(row["value"], row.get("value_base64")) for row in rows] == expected


@pytest.mark.parametrize(
    ("query", "status", "error_code"),
    [
        ("from=yesterday", 400, 400),
        ("from=latest--1", 400, 400),
        ("from=99999999999999999999", 400, 400),
        ("format=xml", 400, 400),
        ("partition=7", 404, 40402),
        ("partition=x", 404, 40402),
        ("last_event_id=0:x", 400, 400),
    ],
)
def test_invalid_queries(ottla: Ottla, proxy: RunningProxy, query: str, status: int, error_code: int) -> None:
    answer = proxy.http.get(f"/topics/{ottla.topic()}/events?{query}")
    assert (answer.status_code, answer.json()["error_code"]) == (status, error_code)


def test_missing_topic_and_other_media_types(ottla: Ottla, proxy: RunningProxy) -> None:
    assert proxy.http.get("/topics/no-such-topic/events").json()["error_code"] == 40401
    answer = proxy.http.get(f"/topics/{ottla.topic()}/events", headers={"accept": "application/json"})
    assert answer.status_code == 406


def test_keep_alive_comments_and_end_with_the_proxy(ottla: Ottla, start_proxy: StartProxy) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "events.keepalive.ms": 100})
    with Stream(proxy, ottla.topic()) as stream:
        while next(stream.lines) != ": keep-alive":
            pass
        proxy.stop()
        assert not list(stream.events)


def test_number_of_streams_of_a_user_is_limited(ottla: Ottla, start_proxy: StartProxy) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "events.per.user.max": 1})
    topic = ottla.topic()
    with Stream(proxy, topic) as stream:
        next(stream.lines)
        with Stream(proxy, topic) as second:
            assert second.answer.status_code == 429

    def is_open() -> bool:
        with Stream(proxy, topic) as another:
            return another.answer.status_code == 200

    ottla.wait_until(is_open, timeout_s=20)


def test_curl_tails_a_topic(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    ottla.produce(topic, *map(str, range(3)))
    command = ["curl", "-sN", "--max-time", "5", f"{proxy.url}/topics/{topic}/events?from=beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        events = parsed(line.rstrip("\n") for line in curl.stdout)
        assert [next(events).data["value"] for _ in range(3)] == ["0", "1", "2"]
        curl.kill()


def test_pages_of_other_origins_need_a_setting(ottla: Ottla, start_proxy: StartProxy) -> None:
    origin = {"origin": "https://dashboard.example.com"}
    for allowed, expected in (("", None), (origin["origin"], origin["origin"])):
        proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "access.control.allow.origin": allowed})
        answer = proxy.http.get("/topics", headers=origin)
        assert answer.headers.get("access-control-allow-origin") == expected
        other = proxy.http.get("/topics", headers={"origin": "https://evil.example.com"})
        assert "access-control-allow-origin" not in other.headers
