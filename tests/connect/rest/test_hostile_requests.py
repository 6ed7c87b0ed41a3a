"""Requests that are malformed, huge or slow: each gets an answer or loses its connection, and the worker goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

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
