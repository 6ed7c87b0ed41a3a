"""One script of requests to Connect's REST API, for a stock worker and for ours.

A step has a name, a request, and for states that arrive later the text to wait for. `run` returns the answers by the
names of the steps.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

JSON = {"Content-Type": "application/json"}
DEADLINE_S = 30.0


class Answer(NamedTuple):
    """The response to a step."""

    status: int
    headers: Mapping[str, str]
    body: Any
    """JSON, or text if the body is not JSON."""


class Step(NamedTuple):
    """A request. `until` is a part of the answer's text: the request is repeated until it is there."""

    name: str
    method: str
    path: str
    body: Any = None
    until: str = ""
    headers: Mapping[str, str] = JSON


def request(
    host: str, port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] = JSON
) -> Answer:
    """Send one request. A body of bytes is sent as it is, other ones as JSON."""
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        text = response.read().decode()
        found = {name.lower(): value for name, value in response.getheaders()}
        try:
            return Answer(response.status, found, json.loads(text) if text else "")
        except ValueError:
            return Answer(response.status, found, text)
    finally:
        connection.close()


def run(steps: Sequence[Step], host: str, port: int) -> dict[str, Answer]:
    """Run the script, and return the answer to each step."""
    answers = {}
    for step in steps:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = request(host, port, step.method, step.path, step.body, step.headers)
            text = json.dumps(answer.body)
            # The group divides its work at this moment: clients repeat the request.
            done = step.until in f"{text} {answer.status}" and not (answer.status == 409 and "momentarily" in text)
            if done or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert done, f"{step.name}: {step.until!r} is not in {answer}"
        assert step.name not in answers, step.name
        answers[step.name] = answer
    return answers
