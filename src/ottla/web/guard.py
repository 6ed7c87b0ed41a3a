"""The outermost layer of an application: the limits of bodies, and the access log.

`receive` of the application raises BodyTooLarge or BodyTimeout, which become responses wherever they are raised. A
request whose Content-Length exceeds the limit does not reach the application. Requests that `streams` selects have no
limit of their whole body, only of the time between its parts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ottla.web.errors import BodyTimeout, BodyTooLarge, HttpError, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

access = logging.getLogger("ottla.web.access")

USER: Final = "ottla.user"
"""The key of the authenticated user in the state of a scope; the application sets it for the access log."""

_StreamFilter: TypeAlias = Callable[[MutableMapping[str, Any]], bool]


class BodyLimits(NamedTuple):
    """Limits of the body of a request."""

    bytes: int = 16 * 1024 * 1024
    idle_s: float = 30.0
    streams: _StreamFilter | None = None


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, limits: BodyLimits, *, access_log: bool = False) -> None:
        self._app = app
        self._limits = limits
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, self._limits, receive, send)
        try:
            if exchange.declared_bytes > exchange.limit_bytes:
                raise BodyTooLarge(self._limits.bytes)
            await self._app(scope, exchange.receive, exchange.send)
        except HttpError as error:
            if exchange.status:
                raise
            await error_response(error)(scope, receive, exchange.send)
        finally:
            if self._access_log:
                exchange.log()


class _Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, limits: BodyLimits, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._limits = limits
        self._receive = receive
        self._send = send
        self._began_s = time.perf_counter()
        is_stream = limits.streams is not None and limits.streams(scope)
        self.limit_bytes: float = float("inf") if is_stream else limits.bytes
        self.declared_bytes, self._has_body = _declared(scope)
        self._received_bytes = self._sent_bytes = 0
        self.status = 0

    async def receive(self) -> Message:
        if not self._has_body:  # The end of the body, or a disconnect, for which there is no limit.
            return await self._receive()
        try:
            async with asyncio.timeout(self._limits.idle_s):
                message = await self._receive()
        except TimeoutError as error:
            raise BodyTimeout(self._limits.idle_s) from error
        self._has_body = bool(message.get("more_body"))
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self.limit_bytes:
            raise BodyTooLarge(self._limits.bytes)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self._sent_bytes += len(message.get("body", b""))
        await self._send(message)

    def log(self) -> None:
        """Write the line of the access log. The path without its query, which may have secrets."""
        client = self._scope.get("client") or ("-", 0)
        user = self._scope.get("state", {}).get(USER, "-")
        took_ms = (time.perf_counter() - self._began_s) * 1000
        access.info(
            '%s:%d %s "%s %s" %d %d %.1f ms',
            *client,
            user,
            self._scope["method"],
            self._scope["raw_path"].decode("latin-1"),
            self.status,
            self._sent_bytes,
            took_ms,
        )


def _declared(scope: Scope) -> tuple[int, bool]:
    """Return the Content-Length, and whether the request has a body."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return (int(value), int(value) > 0) if value.isdigit() else (0, True)
        if name == b"transfer-encoding":
            return 0, True
    return 0, False
