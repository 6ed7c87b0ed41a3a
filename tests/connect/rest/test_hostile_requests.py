"""Requests that are malformed, huge or slow: each gets an answer or loses its connection, and the worker goes on."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.connect.rest.script import JSON, request
from tests.connect.rest.serving import Serving, serving

METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
PARTS = st.sampled_from(
    ["connectors", "connector-plugins", "admin", "loggers", "root", "config", "validate", "status", "tasks", "0",
     "offsets", "restart", "topics", "reset", "pause", "stop", "a", "%2e%2e", "%00", "%ff", "a%2fb", "fence", "", "99"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["name", "config", "initial_state", "offsets", "partition", "offset", "level", "connector.class",
                        "topics", "topic", "tasks.max", "transforms", "predicates", "key.converter"])  # fmt: skip
TEXTS = st.sampled_from(["FileStreamSource", "FileStreamSink", "a,b,a", "", "${env:HOME}", "[", "-1", "x" * 300, "\0"])
BODIES = st.dictionaries(KEYS, TEXTS | VALUES, max_size=5) | VALUES


@pytest.fixture(scope="module")
def worker() -> Iterator[Serving]:
    with serving(body_bytes=100_000, idle_s=0.5) as running:
        yield running


def alive(worker: Serving) -> None:
    assert request(worker.host, worker.port, "GET", "/health").status == 200


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(METHODS, st.lists(PARTS, max_size=5), BODIES, st.sampled_from(["", "?expand=status", "?forward=true", "?%ff=%"]))
def test_any_request_gets_an_answer_that_is_not_a_fault_of_the_worker(
    worker: Serving, method: str, parts: list[str], body: object, query: str
) -> None:
    answer = request(worker.host, worker.port, method, "/" + "/".join(parts) + query, body)
    assert answer.status < 500, (method, parts, body, answer)
    if answer.status >= 400 and method != "HEAD":
        assert answer.body["error_code"] == answer.status
        assert answer.body["message"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_bodies_that_are_not_json_are_bad_requests(worker: Serving, body: bytes) -> None:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        answer = request(worker.host, worker.port, "POST", "/connectors", body)
        assert answer.status == 400


@pytest.mark.parametrize(
    "body",
    [b"[" * 50_000, b'{"a":' * 10_000, b'{"name":"\\ud800","config":{"connector.class":"\\udfff"}}', b'{"a":NaN}',
     b"\xff\xfe", b'{"name":"x","config":{"connector.class":"FileStreamSource","topic":"' + b"t" * 60_000 + b'"}}'],
)  # fmt: skip
def test_deep_broken_and_long_bodies_are_answered(worker: Serving, body: bytes) -> None:
    answer = request(worker.host, worker.port, "POST", "/connectors", body)
    assert answer.status in (201, 400, 409)
    alive(worker)


def test_a_body_that_is_too_large_is_refused(worker: Serving) -> None:
    assert request(worker.host, worker.port, "POST", "/connectors", b" " * 100_001).status == 413
    alive(worker)


def test_a_slow_body_ends_with_a_timeout(worker: Serving) -> None:
    with socket.create_connection((worker.host, worker.port), 20) as client:
        head = "POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        client.sendall(head.encode() + b'{"name":')
        client.settimeout(20)
        assert b" 408 " in client.recv(4096).split(b"\r\n")[0] + b" "
    alive(worker)


def test_internal_requests_need_a_signature(worker: Serving) -> None:
    for method, path in (("POST", "/connectors/a/tasks"), ("PUT", "/connectors/a/fence")):
        assert request(worker.host, worker.port, method, path, []).status == 403


def test_answers_have_no_body_for_head(worker: Serving) -> None:
    answer = request(worker.host, worker.port, "HEAD", "/connectors", None, JSON)
    assert (answer.status, answer.body) == (200, "")


def sent(worker: Serving, *parts: bytes, pause_s: float = 0.0, most: int = 1 << 20) -> bytes:
    """Send bytes on one connection, with pauses, and return what comes back until it is closed or silent."""
    found = b""
    with socket.create_connection((worker.host, worker.port), 20) as client:
        client.settimeout(3.0)
        try:
            for part in parts:
                client.sendall(part)
                time.sleep(pause_s)
            while len(found) < most and (received := client.recv(65536)):
                found += received
        except (TimeoutError, ConnectionError):
            pass  # the worker has closed the connection, or waits for more
    return found


def head(method: str, path: str, *more: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *more]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


@pytest.mark.parametrize(
    "headers",
    [[f"X-{number}: {number}" for number in range(5_000)], ["X: " + "y" * 1_000_000], ["X" * 200_000 + ": y"]],
    ids=["many", "long value", "long name"],
)
def test_very_many_or_long_headers_are_refused(worker: Serving, headers: list[str]) -> None:
    first = sent(worker, head("GET", "/connectors", *headers))[:40]
    assert not first or first.split()[1] in (b"400", b"413", b"431", b"200"), first
    alive(worker)


def test_slow_heads_do_not_delay_other_clients(worker: Serving) -> None:
    clients = [socket.create_connection((worker.host, worker.port), 20) for _ in range(100)]
    try:
        for each in clients:
            each.sendall(b"GET /connectors HTTP/1.1\r\nHost:")
        started_s = time.monotonic()
        alive(worker)
        assert time.monotonic() - started_s < 5.0
    finally:
        for each in clients:
            each.close()


def test_pipelined_requests_are_answered_in_order(worker: Serving) -> None:
    paths = ["/health", "/connectors", "/nothing", "/connectors/none/status"] * 25
    answer = sent(worker, b"".join(head("GET", path) for path in paths))
    statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+)", answer)]
    assert statuses == [200, 200, 404, 404] * 25
    alive(worker)


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/jsonp", "application/json, text/plain", "json", "\xff"],
)  # fmt: skip
def test_other_content_types_are_refused(worker: Serving, kind: str) -> None:
    body = {"name": "typed", "config": {"connector.class": "FileStreamSource", "topic": "t"}}
    answer = request(worker.host, worker.port, "POST", "/connectors", body, {"Content-Type": kind})
    assert answer.status == 415, answer
    assert request(worker.host, worker.port, "GET", "/connectors/typed").status == 404


@pytest.mark.parametrize(
    "path",
    ["/connectors/../admin/loggers", "/connectors/%2e%2e/admin/loggers", "//connectors/none", "/connectors//status",
     "/connectors/..%2f..%2fetc%2fpasswd/config", "/connectors/a/status/../../../health", "/%63onnectors/none",
     "/connectors\\none", "/connectors/none;v=1/status", "/connectors/none%3Fx/status", "/" + "a/" * 5_000,
     "/connectors/%", "/connectors/%zz/status", "/connectors/%c0%ae/status"],
)  # fmt: skip
def test_tricks_with_paths_find_nothing(worker: Serving, path: str) -> None:
    answer = request(worker.host, worker.port, "GET", path)
    assert answer.status in (400, 404, 414), answer
    assert "root:" not in str(answer.body)


@pytest.mark.parametrize(
    "name",
    ["a/b", "a%2Fb", "..", "a\x01b", "a\nb", "a\x7fb", "\u202egnp", " a ", "a" * 30_000, "é" * 1_000, "\U0001f600",
     "a?b#c"],
)  # fmt: skip
def test_strange_names_are_refused_or_work_everywhere(worker: Serving, name: str) -> None:
    config = {"connector.class": "FileStreamSource", "topic": "t", "name": name}
    created = request(worker.host, worker.port, "POST", "/connectors", {"name": name, "config": config})
    assert created.status in (201, 400), created
    if created.status == 400:
        assert created.body["message"]
        return
    stored = created.body["name"]
    path = "/connectors/" + quote(stored, safe="")
    assert stored in request(worker.host, worker.port, "GET", "/connectors").body
    assert "\n" not in created.headers["location"]
    if len(path) < 60_000:
        for more, status in (("", 200), ("/config", 200), ("/topics", 200)):
            assert request(worker.host, worker.port, "GET", path + more).status == status
        assert request(worker.host, worker.port, "DELETE", path).status == 204


def test_a_name_of_a_megabyte_is_refused(worker: Serving) -> None:
    name = "n" * (1 << 20)
    first = sent(worker, head("GET", f"/connectors/{name}/status"))[:40]
    assert not first or first.split()[1] in (b"400", b"404", b"414", b"431"), first
    body = {"name": name, "config": {"connector.class": "FileStreamSource", "topic": "t"}}
    assert request(worker.host, worker.port, "POST", "/connectors", body).status == 413
    alive(worker)


def test_duplicate_and_unknown_keys_have_one_meaning(worker: Serving) -> None:
    text = b'{"name":"x","name":"twice","config":{"topic":"a","topic":"b","connector.class":"FileStreamSource"}}'
    created = request(worker.host, worker.port, "POST", "/connectors", text)
    assert (created.status, created.body["name"], created.body["config"]["topic"]) == (201, "twice", "b")
    assert request(worker.host, worker.port, "DELETE", "/connectors/twice").status == 204
    body = {"name": "y", "config": {"connector.class": "FileStreamSource", "topic": "t"}, "secret": 1}
    answer = request(worker.host, worker.port, "POST", "/connectors", body)
    assert answer.status == 400
    assert "secret" in answer.body["message"]


@pytest.mark.parametrize(
    "lines",
    [["Content-Length: 5", "Content-Length: 6"], ["Content-Length: -1"], ["Content-Length: x"],
     ["Transfer-Encoding: chunked", "Content-Length: 5"], ["Transfer-Encoding: gzip"]],
)  # fmt: skip
def test_ambiguous_lengths_smuggle_no_request(worker: Serving, lines: list[str]) -> None:
    """The bytes after the head must not be answered as a request of their own after an accepted one."""
    answer = sent(worker, head("POST", "/connectors", *lines) + b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", answer)
    assert all(int(each) >= 400 for each in statuses[:1]), answer[:300]
    assert not (statuses[:1] == [b"400"] and b"200" in statuses[1:] and "Content-Length: 6" in lines), answer[:300]
    alive(worker)
