"""The ASGI application: finds the operation of a request, and turns results and errors into responses."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConnectError,
    NotFoundError,
    NotLeaderError,
    RebalanceNeededError,
    SignatureError,
)
from ottla.connect.herder.herder import Herder
from ottla.connect.rest import connectors, internal, loggers, plugins, root
from ottla.connect.rest.forwarding import Forwarding
from ottla.connect.rest.requests import Request
from ottla.connect.rest.router import Operation, Reply, Route, Router, allowed, segments_of
from ottla.web.errors import HttpError
from ottla.web.responses import json_bytes

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

logger = logging.getLogger(__name__)

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_STATUS: Final = {
    NotFoundError: 404,
    AlreadyExistsError: 409,
    BadRequestError: 400,
}
_STALE: Final = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
_JSON: Final = b"application/json"


class Surface(NamedTuple):
    """Which parts of the API a listener serves."""

    admin: bool = True
    main: bool = True
    topic_tracking: bool = True
    topic_reset: bool = True


class _Response(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes = _JSON


class Application:
    """The API of one worker on one listener. `timeout_s` is the deadline of each request."""

    def __init__(
        self, herder: Herder, forwarding: Forwarding, timeout_s: float = 90.0, surface: Surface = Surface()  # noqa: B008
    ) -> None:  # fmt: skip
        self._herder = herder
        self._forwarding = forwarding
        self._timeout_s = timeout_s
        self._router = Router(_routes(surface))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        response = await self._respond(scope, receive)
        is_head = scope["method"] == "HEAD"
        headers = [*response.headers, (b"content-length", str(len(response.body)).encode())]
        if response.body:
            headers.append((b"content-type", response.content_type))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if is_head else response.body})

    async def _respond(self, scope: Scope, receive: Receive) -> _Response:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._handle(scope, receive)
        except TimeoutError:
            return _failure(500, "Request timed out")
        except HttpError as error:
            return _failure(error.status, error.message, error.headers)
        except RebalanceNeededError as error:
            logger.info("A request has to be repeated: %s", error)
            return _failure(409, _STALE)
        except SignatureError as error:
            return _failure(error.status, str(error))
        except ConnectError as error:
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
            return _failure(status, str(error))
        except Exception as error:  # the answer is 500, as for any fault of the worker
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.exception("Unhandled error in %s %s", scope["method"], scope["path"])
            return _failure(500, f"{type(error).__name__} in {place.name}; the log of the worker has the details")

    async def _handle(self, scope: Scope, receive: Receive) -> _Response:
        method = scope["method"]
        raw_path = scope["raw_path"].partition(b"?")[0]
        handlers, parameters = self._router.find(segments_of(raw_path))
        if not handlers:
            raise HttpError(404, 404, "HTTP 404 Not Found")
        headers = _headers(scope["headers"])
        if method == "OPTIONS":
            text = ", ".join(allowed(handlers)).encode()
            return _Response(200, text, ((b"allow", text.replace(b" ", b"")),), b"text/plain")
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            extra = {"Allow": ",".join(allowed(handlers))}
            raise HttpError(405, 405, "HTTP 405 Method Not Allowed", extra)
        if not _accepts(headers.get("accept", "")):
            raise HttpError(406, 406, "HTTP 406 Not Acceptable")
        body = await _body(receive)
        if body and method in _WITH_BODY and not _is_json(headers.get("content-type", "")):
            raise HttpError(415, 415, "HTTP 415 Unsupported Media Type")
        request = Request(method, parameters, scope["query_string"], headers, body)
        try:
            reply = await handler(Operation(self._herder, request))
        except NotLeaderError as error:
            return await self._forward(request, raw_path.decode("latin-1"), error, scope)
        return _success(reply, scope, headers)

    async def _forward(self, request: Request, path: str, error: NotLeaderError, scope: Scope) -> _Response:
        status, body, place = await self._forwarding.send(request, path, error)
        path_of_place = f"/connectors/{place.rpartition('/connectors/')[2]}" if "/connectors/" in place else ""
        return _Response(status, body, _location(path_of_place, scope, request.headers))


def _routes(surface: Surface) -> Iterable[Route]:
    if surface.main:
        yield from (*root.ROUTES, *connectors.ROUTES, *plugins.ROUTES, *internal.ROUTES)
        if surface.topic_tracking:
            yield from (each for each in connectors.TOPIC_ROUTES if surface.topic_reset or each.method == "GET")
    if surface.admin:
        yield from loggers.ROUTES


def _failure(status: int, message: str, headers: Mapping[str, str] | None = None) -> _Response:
    pairs = tuple((name.lower().encode(), value.encode()) for name, value in (headers or {}).items())
    return _Response(status, json_bytes({"error_code": status, "message": message}), pairs)


def _success(reply: Reply, scope: Scope, headers: Mapping[str, str]) -> _Response:
    body = b"" if reply.value is None else json_bytes(reply.value)
    return _Response(reply.status, body, _location(reply.place, scope, headers))


def _location(place: str, scope: Scope, headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    if not place:
        return ()
    host = headers.get("host") or ":".join(map(str, scope.get("server") or ("localhost",)))
    return ((b"location", f"{scope['scheme']}://{host}{place}".encode()),)


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, 400, "The connection was closed before the end of the request")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]},{text}" if key in found else text
    return found


def _accepts(header: str) -> bool:
    """Whether a client accepts JSON."""
    if not header.strip():
        return True
    for each in header.split(","):
        kind, _, rest = each.partition(";")
        quality = next((part.split("=")[1] for part in rest.replace(" ", "").split(";") if part.startswith("q=")), "1")
        if kind.strip().lower() in ("*/*", "application/*", "application/json") and quality.strip("0.") != "":
            return True
    return False


def _is_json(header: str) -> bool:
    return header.partition(";")[0].strip().lower() == "application/json"


def internal_path(method: str, segments: list[str]) -> bool:
    """Whether a request is one between workers, which is signed and needs no credentials."""
    return len(segments) == 3 and segments[0] == "connectors" and (method, segments[2]) in internal.PATHS
