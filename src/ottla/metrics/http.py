"""A small HTTP server in the event loop of the caller: GET of a few pages, such as /metrics.

The base install has no HTTP library, and a scrape or a probe needs one method, one path and two headers. Its limits
protect the process:

- A request has at most `MOST_HEADER_BYTES`, and arrives within `HEADER_S`; an idle connection is closed after `IDLE_S`.
- There are at most `MOST_CONNECTIONS` connections. One more replaces the oldest that waits for a request, so that idle
  connections cannot keep scrapes and probes away. While all are being answered, it is closed at once.
- All scrapes of `FRESH_S` share one body, and scrapes at the same time share one collection. A client that scrapes in a
  loop therefore costs no more than one scrape per second.
- A client that does not read its response loses its connection after `SEND_S`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, cast

from ottla.common.completion import Completion
from ottla.metrics.exposition import content_type

logger = logging.getLogger(__name__)

MOST_HEADER_BYTES: Final = 8 * 1024
MOST_CONNECTIONS: Final = 32
HEADER_S: Final = 10.0
IDLE_S: Final = 120.0
SEND_S: Final = 30.0
FRESH_S: Final = 1.0
_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
PLAIN: Final = "text/plain; charset=utf-8"

Body = list[bytes]


class Answer(NamedTuple):
    """A response: its status, the type of its contents, and the contents."""

    status: int
    content_type: str
    body: Body


class Pages(Protocol):
    """The pages of an endpoint. `hint` is the body of the response to another path."""

    hint: bytes

    def answer(self, path: str, headers: Mapping[str, str]) -> Completion[Answer] | None:
        """Return the response to a GET or HEAD; None if there is no such page."""


class _Request(NamedTuple):
    method: str
    path: str
    is_old: bool
    """Whether it is HTTP/1.0, whose connections are closed after the response."""
    headers: Mapping[str, str]

    @property
    def keeps_alive(self) -> bool:
        """Whether the client may send another request."""
        return not self.is_old and self.headers.get("connection", "").lower() != "close"


def _parsed(head: bytes) -> _Request | None:
    """Return the request; None if it is not one of HTTP/1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in {"HTTP/1.1", "HTTP/1.0"}:
        return None
    headers = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            return None
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        return None  # no request here has a body
    return _Request(words[0], words[1].partition("?")[0], words[2] == "HTTP/1.0", headers)


class Scrapes:
    """The page /metrics with shared bodies: `make` begins a collection in a format."""

    hint = b"The metrics are at /metrics.\n"

    def __init__(self, make: Callable[[str], Completion[Body]], now_s: Callable[[], float]) -> None:
        self._make = make
        self._now_s = now_s
        self._latest: dict[str, tuple[float, Completion[Body]]] = {}

    def answer(self, path: str, headers: Mapping[str, str]) -> Completion[Answer] | None:
        """Return the response to a scrape."""
        if path != "/metrics":
            return None
        chosen = content_type(headers)
        return self.body(chosen).then(lambda body: Answer(200, chosen, body))

    def body(self, chosen: str) -> Completion[Body]:
        """Return a body of this format that is at most `FRESH_S` old, or is collected now."""
        known = self._latest.get(chosen)
        now_s = self._now_s()
        if known is not None and (not known[1].done or now_s - known[0] < FRESH_S):
            return known[1]
        made = self._make(chosen)
        self._latest[chosen] = now_s, made
        return made


class Endpoint:
    """The connections of the endpoint. With a token, each request needs it in the header Authorization."""

    def __init__(self, pages: Pages, loop: asyncio.AbstractEventLoop, token: str | None = None) -> None:
        self.pages = pages
        self.loop = loop
        self._authorization = None if token is None else f"Bearer {token}".encode()
        self.connections: dict[_Connection, None] = {}
        """The oldest first."""

    def connection(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Connection(self)

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Whether the client may read the pages."""
        if self._authorization is None:
            return True
        return hmac.compare_digest(headers.get("authorization", "").encode("latin-1"), self._authorization)

    def admit(self, connection: _Connection) -> bool:
        """Whether the connection may stay; the oldest one that waits for a request makes room for it."""
        if len(self.connections) >= MOST_CONNECTIONS:
            waiting = next((each for each in self.connections if each.is_waiting), None)
            if waiting is None:
                return False
            del self.connections[waiting]
            waiting.abort()
        self.connections[connection] = None
        return True

    def close(self) -> None:
        """Close all connections at once."""
        for connection in tuple(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._endpoint.admit(self):
            self._close_after(HEADER_S)
        else:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._endpoint.connections.pop(self, None)
        self._transport = None
        self._cancel_timer()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a request, with no response in progress."""
        transport = self._transport
        return not self._is_answering and (transport is None or not transport.get_write_buffer_size())

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _close_after(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self._endpoint.loop.call_later(seconds, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._received and not self._is_answering:
            self._close_after(HEADER_S)
        self._received += data
        if len(self._received) > MOST_HEADER_BYTES:
            # Also for a client that sends many requests before it reads a response.
            self._refuse(431)
        elif not self._is_answering:
            self._next_request()

    def _next_request(self) -> None:
        head, end, rest = bytes(self._received).partition(_END)
        if not end:
            return
        self._received = bytearray(rest)
        request = _parsed(head)
        if request is None:
            self._refuse(400)
        elif request.method not in {"GET", "HEAD"}:
            self._refuse(405)
        elif not self._endpoint.allows(request.headers):
            self._refuse(401)
        else:
            self._answer(request)

    def _answer(self, request: _Request) -> None:
        pages = self._endpoint.pages
        answer = pages.answer(request.path, request.headers)
        if answer is None:
            self._respond(request, Answer(404, PLAIN, [pages.hint]))
            return
        self._is_answering = True
        self._cancel_timer()
        answer.on_done(lambda done: self._answered(request, done))

    def _answered(self, request: _Request, done: Completion[Answer]) -> None:
        self._is_answering = False
        if done.error is not None:
            logger.error("A request for %s failed", request.path, exc_info=done.error)
            self._refuse(500)
        else:
            self._respond(request, done.result())

    def _refuse(self, status: int) -> None:
        self._received.clear()
        self._respond(None, Answer(status, PLAIN, [f"{_REASONS[status]}\n".encode()]))

    def _respond(self, request: _Request | None, answer: Answer) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        status, kind, body = answer
        keeps_alive = request is not None and request.keeps_alive
        lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Type: {kind}"]
        lines += [f"Content-Length: {sum(map(len, body))}", f"Connection: {'keep-alive' if keeps_alive else 'close'}"]
        if status == 401:
            lines.append("WWW-Authenticate: Bearer")
        if status == 405:
            lines.append("Allow: GET, HEAD")
        head = ("\r\n".join(lines)).encode() + _END
        transport.writelines([head] if request is not None and request.method == "HEAD" else [head, *body])
        self._close_after(IDLE_S if not transport.get_write_buffer_size() else SEND_S)
        if not keeps_alive:
            transport.close()
        elif self._received:
            self._endpoint.loop.call_soon(self._next_request)
