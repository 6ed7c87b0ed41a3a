"""One request to the registries: failover between addresses, bounded retries, a deadline. Without I/O.

A caller executes the steps that `Requests.steps` yields: it sends a `Send` and passes the `Received` or `Failed` back,
or it waits for the time of a `Wait`. Every address is tried once in each round, beginning with the address that
answered last. Between rounds the client waits for a random time, whose limit doubles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from ottla.registry_client.errors import RETRIABLE_STATUSES, RegistryUnavailable, SchemaRegistryError
from ottla.registry_client.settings import RegistrySettings

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json"


class Send(NamedTuple):
    """Send this request, and pass the outcome back."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout_s: float


class Wait(NamedTuple):
    """Wait for this time."""

    seconds: float


class Received(NamedTuple):
    """A response."""

    status: int
    body: bytes


class Failed(NamedTuple):
    """The request has no response; `reason` says why."""

    reason: str


T = TypeVar("T")
Outcome: TypeAlias = Received | Failed | None
Steps: TypeAlias = Generator[Send | Wait, Outcome, T]


class Request(NamedTuple):
    """A request at any of the addresses. Parameters that are None or False are omitted."""

    method: str
    path: str
    parameters: Mapping[str, Any] = {}
    body: Mapping[str, Any] | None = None

    def target(self) -> str:
        pairs = [
            (name, "true" if each is True else each)
            for name, value in self.parameters.items()
            for each in (value if isinstance(value, list) else [value])
            if each is not None and each is not False
        ]
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path


def path(*parts: str | int) -> str:
    """Return a path of these parts, each quoted: a subject may have slashes."""
    return "".join("/" + quote(str(part), safe="") for part in parts)


class Requests:
    """Makes the steps of requests. Remembers the address that answered last."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float], random: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds; `random` returns numbers from 0 to 1."""
        self._settings = settings
        self._clock = clock
        self._random = random
        self._first = 0

    def steps(self, request: Request) -> Steps[Any]:
        """Yield the steps of a request; return the JSON of the response. Raises RegistryClientError."""
        values = self._settings.values
        deadline = self._clock() + values["default_api_timeout_ms"] / 1000
        problems: dict[str, Received | Failed] = {}
        for attempt in range(values["max_retries"] + 1):
            if attempt:
                limit = min(values["retries_wait_ms"] * 2.0 ** (attempt - 1), values["retries_max_wait_ms"]) / 1000
                yield Wait(max(0.0, min(limit * self._random(), deadline - self._clock())))
            for _ in self._settings.urls:
                url, remaining = self._settings.urls[self._first], deadline - self._clock()
                if remaining <= 0:
                    raise _failure(problems, "within default.api.timeout.ms")
                outcome = yield self._send(request, url, remaining)
                assert outcome is not None
                if isinstance(outcome, Received) and outcome.status not in RETRIABLE_STATUSES:
                    return _result(outcome)
                problems[url] = outcome
                self._first = (self._first + 1) % len(self._settings.urls)
        raise _failure(problems, f"after {values['max_retries'] + 1} attempts")

    def _send(self, request: Request, url: str, remaining: float) -> Send:
        headers = {"Accept": _ACCEPT, **self._settings.headers}
        authorization = self._settings.authorization()
        if authorization is not None:
            headers["Authorization"] = authorization
        body = None
        if request.body is not None:
            headers["Content-Type"] = CONTENT_TYPE
            body = json.dumps(request.body, ensure_ascii=False, separators=(",", ":")).encode()
        timeout = min(remaining, self._settings.values["http_read_timeout_ms"] / 1000)
        return Send(request.method, url + request.target(), headers, body, timeout)


def _result(received: Received) -> Any:
    if not 200 <= received.status < 300:
        raise _error(received)
    try:
        return json.loads(received.body) if received.body else None
    except ValueError as error:
        shown = received.body[:100].decode(errors="replace")
        raise SchemaRegistryError(received.status, -1, f"The response is not JSON: {shown!r}") from error


def _error(received: Received) -> SchemaRegistryError:
    try:
        body = json.loads(received.body)
        return SchemaRegistryError(received.status, int(body["error_code"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        shown = received.body[:200].decode(errors="replace").strip()
        return SchemaRegistryError(received.status, received.status, shown or "The response has no message")


def _failure(problems: Mapping[str, Received | Failed], when: str) -> Exception:
    """Return the error of a registry that answered, else of all addresses."""
    for outcome in reversed(list(problems.values())):
        if isinstance(outcome, Received):
            return _error(outcome)
    reasons = "; ".join(f"{url}: {outcome.reason}" for url, outcome in problems.items() if isinstance(outcome, Failed))
    return RegistryUnavailable(f"No schema registry answered {when}: {reasons or 'no address was tried in time'}")
