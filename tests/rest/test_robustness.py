"""Hostile and slow clients, limits, and a broker that dies."""

from __future__ import annotations

import json
import random
import socket
import threading
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.testing import Ottla

from .conftest import BINARY, JSON, V2, RunningProxy, StartProxy
from .test_consumers import Instance, code

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
NAMES = st.sampled_from(
    ["records", "key", "value", "partition", "partitions", "topics", "topic_pattern", "offsets", "timestamps", "topic",
     "offset", "timestamp", "metadata", "value_schema", "key_schema_id", "name", "format", "fetch.min.bytes"]
)  # fmt: skip
BODIES = st.recursive(VALUES, lambda inner: st.dictionaries(NAMES, inner | st.lists(inner, max_size=3), max_size=4))
PATHS = (
    "/topics/TOPIC", "/topics/TOPIC/partitions/0", "/consumers/fuzz", "INSTANCE/subscription",
    "INSTANCE/assignments", "INSTANCE/positions", "INSTANCE/positions/beginning", "INSTANCE/positions/end",
    "INSTANCE/offsets",
)  # fmt: skip


@pytest.fixture
def topic(ottla: Ottla) -> str:
    return ottla.topic()


@pytest.fixture
def instance(proxy: RunningProxy) -> Instance:
    return Instance(proxy.http, "fuzz")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(path=st.sampled_from(PATHS), body=BODIES | st.binary(max_size=60), format_=st.sampled_from([BINARY, JSON, V2]))
def test_no_body_is_a_server_error(
    proxy: RunningProxy, topic: str, instance: Instance, path: str, body: Any, format_: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body, allow_nan=True).encode()
    path = path.replace("TOPIC", topic).replace("INSTANCE", instance.url)
    answer = proxy.http.post(path, content=content, headers={"content-type": format_})
    assert answer.status_code < 500, (path, body, answer.text)
    if answer.status_code >= 400 and "offsets" not in answer.json():
        assert set(answer.json()) == {"error_code", "message"}


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 100_000, b'"\\ud800"', b"\xff\xfe"])
def test_deep_long_and_broken_json_is_400(proxy: RunningProxy, topic: str, content: bytes) -> None:
    answer = proxy.http.post(f"/topics/{topic}", content=content, headers={"content-type": JSON})
    assert code(answer) == (400, 400)


def test_query_of_reads_is_checked(proxy: RunningProxy, instance: Instance) -> None:
    seed = random.Random(7)
    for _ in range(50):
        text = "".join(chr(seed.randrange(32, 0x2000)) for _ in range(seed.randrange(1, 12)))
        answer = instance.records(timeout=text)
        assert answer.status_code in {200, 400, 409}


def test_large_bodies_are_413(ottla: Ottla, start_proxy: StartProxy, topic: str) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "request.max.bytes": 10_000})
    body = json.dumps({"records": [{"value": "x" * 20_000}]}).encode()
    answer = proxy.http.post(f"/topics/{topic}", content=body, headers={"content-type": JSON})
    assert code(answer) == (413, 413)
    chunked = proxy.http.post(
        f"/topics/{topic}", content=iter([body[:9_000], body[9_000:]]), headers={"content-type": JSON}
    )
    assert code(chunked) == (413, 413)
    assert not ottla.records(topic)


def test_slow_body_is_408_and_half_requests_leave_nothing(ottla: Ottla, start_proxy: StartProxy, topic: str) -> None:
    proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, "request.timeout.ms": 300})
    port = int(proxy.url.rpartition(":")[2])
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: 100\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(head + b'{"records": [{"value": 1}]}')
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as half:
            half.sendall(head + b'{"records": [{"value": 1}]}')
    assert proxy.http.get("/topics").status_code == 200
    assert not ottla.records(topic)


def test_requests_above_a_limit_are_refused_at_once(ottla: Ottla, start_proxy: StartProxy, topic: str) -> None:
    for limit, expected in (("requests.per.user.max", (429, 42901)), ("requests.max", (503, 503))):
        proxy = start_proxy({"bootstrap.servers": ottla.bootstrap, limit: 1})
        instance = Instance(proxy.http, limit, consumer_request_timeout_ms=30_000)
        instance.assign(topic)
        read = threading.Thread(target=instance.records)
        read.start()
        found: list[httpx.Response] = []

        def is_refused(found: list[httpx.Response] = found, url: str = proxy.url) -> bool:
            found.append(httpx.get(f"{url}/brokers"))
            return found[-1].status_code != 200

        ottla.wait_until(is_refused, timeout_s=20)
        assert code(found[-1]) == expected
        assert found[-1].headers["retry-after"]
        ottla.produce(topic, "x" * 100)
        proxy.stop()
        read.join(40)
        assert not read.is_alive()


def test_killed_broker_loses_no_acknowledged_record(ottla_broker: Any, start_proxy: StartProxy) -> None:
    broker = ottla_broker()
    topic = broker.topic()
    timeouts = {"producer.delivery.timeout.ms": 20_000, "producer.request.timeout.ms": 3_000}
    proxy = start_proxy({"bootstrap.servers": broker.bootstrap, **timeouts})
    acknowledged: dict[int, int] = {}
    stop = threading.Event()

    def produce(first: int) -> None:
        with httpx.Client(base_url=proxy.url, timeout=60) as http:
            number = first
            while not stop.is_set():
                values = list(range(number, number + 10))
                number += 10
                body = {"records": [{"value": value} for value in values]}
                answer = http.post(f"/topics/{topic}", json=body, headers={"content-type": JSON})
                if answer.status_code != 200:
                    continue
                for value, row in zip(values, answer.json()["offsets"], strict=True):
                    if row["error_code"] is None:
                        acknowledged[value] = row["offset"]

    threads = [threading.Thread(target=produce, args=(n * 1_000_000,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        count = len(acknowledged)
        broker.wait_until(lambda count=count: len(acknowledged) > count + 200, timeout_s=60)
        broker.kill()
        broker.start()
    count = len(acknowledged)
    broker.wait_until(lambda: len(acknowledged) > count + 200, timeout_s=60)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    stored = {record.json: record.offset for record in broker.records(topic)}
    assert {value: stored.get(value) for value in acknowledged} == acknowledged
    values = [record.json for record in broker.records(topic)]
    assert len(values) == len(set(values)), "a record was written twice"


def test_slow_reader_of_events_does_not_fill_the_memory(ottla: Ottla, proxy: RunningProxy) -> None:
    topic = ottla.topic()
    for _ in range(60):
        ottla.produce(topic, *["x" * 10_000] * 100)
    port = int(proxy.url.rpartition(":")[2])
    fetched = ottla.requests.count("Fetch")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(20)
        slow.connect(("127.0.0.1", port))
        slow.sendall(f"GET /topics/{topic}/events?from=beginning HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        # 60 MB of records are 240 fetches of 256 KiB. The socket's buffers and the proxy's take a part of them.
        assert proxy.http.get("/topics").status_code == 200
        seen, unchanged = -1, 0
        while unchanged < 50:
            now = ottla.requests.count("Fetch")
            seen, unchanged = now, unchanged + 1 if now == seen else 0
            assert proxy.http.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"] == 6000
        assert seen - fetched < 60
