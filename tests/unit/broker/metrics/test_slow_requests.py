"""The request log: which requests are slow, what a line says, and what clients cannot do to it."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.broker.metrics.requests import EXACT
from ottla.broker.metrics.slow_requests import Measured, SlowRequests
from ottla.broker.metrics.slow_requests import logger as request_log
from ottla.common.completion import Completion
from ottla.common.json_lines import JsonFormatter
from ottla.common.log_lines import LineFormatter
from ottla.common.rate_limit import LINES_PER_PERIOD
from ottla.common.style import Style
from ottla.network.connection import MutingResponse
from ottla.protocol import frames
from tests.unit.broker.harness import BrokerHarness, Connection
from tests.unit.broker.metrics.test_requests import FETCH, JOIN_GROUP, PRODUCE, Answers, response

MS = 1_000_000
PLAIN = Style(coloured=False)


def header_of(key: int = PRODUCE, client_id: str | None = "c") -> frames.RequestHeader:
    return frames.RequestHeader(key, 9, 42, client_id)


def lines_of(key: int, *measured: Measured, slow_ms: int = 100, formatter: logging.Formatter) -> list[str]:
    """The lines of a request log with a threshold of 100 ms."""
    return logged([(header_of(key), each) for each in measured], formatter, slow_ms)


def logged(
    requests: list[tuple[frames.RequestHeader, Measured]], formatter: logging.Formatter, slow_ms: int = 100
) -> list[str]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    slow = SlowRequests(slow_ms)
    connection: Any = Connection()
    connection.remote_port = 4711
    previous = request_log.level
    request_log.addHandler(handler)
    request_log.setLevel(logging.INFO)
    try:
        for header, measured in requests:
            slow.look(connection, header, measured)
    finally:
        request_log.removeHandler(handler)
        request_log.setLevel(previous)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("key", "local_ms", "remote_ms", "is_slow"),
    [
        (PRODUCE, 99, 0, False),
        (PRODUCE, 100, 0, True),
        (PRODUCE, 1, 99, True),
        (FETCH, 1, 500, False),
        (FETCH, 100, 0, True),
        (JOIN_GROUP, 1, 60_000, False),
    ],
)
def test_request_is_slow_by_its_time_and_without_waits_by_design(
    key: int, local_ms: int, remote_ms: int, is_slow: bool
) -> None:
    measured = Measured(10, [b"x"], local_ms * MS, remote_ms * MS)
    assert len(lines_of(key, measured, formatter=JsonFormatter())) == is_slow


def test_line_has_the_fields_of_kafkas_request_log() -> None:
    measured = Measured(10, MutingResponse([b"xyz"], 0.25), 2 * MS, 200 * MS)
    (line,) = lines_of(PRODUCE, measured, formatter=JsonFormatter())
    found = json.loads(line)
    assert (found["logger"], found["message"]) == ("kafka.request.logger", "Completed request")
    assert found["request"] == {
        "requestApiKeyName": "Produce",
        "requestApiKey": 0,
        "requestApiVersion": 9,
        "correlationId": 42,
        "clientId": "c",
        "principal": "User:ANONYMOUS",
        "connection": "127.0.0.1:4711",
        "listener": "PLAINTEXT",
        "clientSoftwareName": "",
        "requestSizeBytes": 10,
        "responseSizeBytes": 3,
        "totalTimeMs": 202.0,
        "localTimeMs": 2.0,
        "remoteTimeMs": 200.0,
        "throttleTimeMs": 250.0,
    }
    (text,) = lines_of(PRODUCE, measured, formatter=LineFormatter(PLAIN))
    start, _, fields = text.partition("Completed request: ")
    assert "INFO  kafka.request.logger" in start
    assert json.loads(fields) == found["request"]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.none(), st.text(max_size=500)))
@example("\0" * 5_000)
@example("\N{GRINNING FACE}" * 5_000)
def test_client_id_cannot_break_a_line(client_id: str | None) -> None:
    requests = [(header_of(client_id=client_id), Measured(1, None, 200 * MS))]
    for formatter in (JsonFormatter(), LineFormatter(PLAIN)):
        (line,) = logged(requests, formatter)
        assert line.isascii()
        assert line.isprintable()
        fields = json.loads(line[line.index("{") :])
        shown = fields.get("request", fields)["clientId"]
        assert shown is client_id is None or client_id.startswith(shown)


def test_lines_are_limited_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    many = [Measured(1, None, 200 * MS)] * 1_000
    assert len(lines_of(PRODUCE, *many, formatter=JsonFormatter())) == LINES_PER_PERIOD


def test_every_request_is_measured_and_the_line_comes_when_it_is_complete(harness: BrokerHarness) -> None:
    seen: list[Any] = []

    class Recorder(SlowRequests):
        def look(self, connection: Any, header: Any, measured: Measured) -> None:
            seen.append((header.client_id, measured.response is not None))

    answers, connection = Answers(harness, Recorder(0)), Connection()
    for _ in range(EXACT + 10):
        answers.ask(PRODUCE, response(PRODUCE), connection, "p")
    later: Completion[Any] = Completion()
    answers.ask(JOIN_GROUP, later, connection, None)
    assert seen == [("p", True)] * (EXACT + 10)
    later.complete(response(JOIN_GROUP))
    assert seen[-1] == (None, True)
