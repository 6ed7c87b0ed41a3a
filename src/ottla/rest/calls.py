"""One HTTP request with the clients of its user. `Endpoint` turns a handler into an application of ASGI.

A handler is `async def handler(call: Call) -> Response`. It raises HttpError, or lets errors of the clients through.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import unquote

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.clients.errors import AuthenticationFailed, ClientError
from ottla.rest.errors import of_client
from ottla.rest.limits import Body, Limits
from ottla.rest.pool import ClientPool, UserClients
from ottla.rest.settings import RestSettings
from ottla.web.credentials import Credentials, credentials_of
from ottla.web.errors import HttpError, error_response
from ottla.web.responses import JSON, json_bytes

logger = logging.getLogger(__name__)

ENCODED: Final = "ottla.encoded"
"""The key in a scope whose path has names with encoded slashes and percent signs."""
_DIGITS_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = b"0" * 19


class Part(Protocol):
    """The state of an API beyond single requests."""

    def sweep(self) -> None:
        """Close what is idle; called every second."""

    async def close(self) -> None:
        """Close everything."""


@dataclass(slots=True)
class Proxy:
    """The state that all requests share; `parts` has the state of each API by its name."""

    settings: RestSettings
    limits: Limits
    pool: ClientPool
    stop: asyncio.Event
    """Set when the proxy stops: streams end."""
    parts: dict[str, Part] = field(default_factory=dict)


class Call:
    """One request of a user."""

    __slots__ = ("_body", "clients", "proxy", "request")

    def __init__(self, proxy: Proxy, request: Request, clients: UserClients, body: Body) -> None:
        self.proxy = proxy
        self.request = request
        self.clients = clients
        self._body = body

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        value = str(self.request.path_params[name])
        return unquote(value) if ENCODED in self.request.scope else value

    async def body(self) -> bytes:
        """Return the body of the request. Raises HttpError."""
        headers = self.request.headers
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return await self.request.body()  # it is empty, and the end is here already
        return await self._body.read(self.request.stream())

    def reserve(self, size: int) -> None:
        """Count bytes of the answer as used until the answer is complete. Raises HttpError."""
        self._body.reserve(size)

    async def json(self) -> Any:
        """Return the JSON in the body; None without a body. Raises HttpError."""
        body = await self.body()
        return parse_json(body) if body else None


Handler = Callable[[Call], Awaitable[Response]]


class Endpoint:
    """Runs a handler: admission, credentials, errors."""

    __slots__ = ("_handler", "_proxy", "media_type")

    def __init__(self, proxy: Proxy, handler: Handler, media_type: str = JSON) -> None:
        self._proxy = proxy
        self._handler = handler
        self.media_type = media_type
        """The media type of errors."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        limits = self._proxy.limits
        body = Body(limits)
        try:
            try:
                credentials = credentials_of(request.headers)
                key = self._proxy.pool.key(credentials)
                limits.enter(key)
            except HttpError as error:
                await error_response(error, self.media_type)(scope, receive, send)
                return
            try:
                response = await self._run(request, key, credentials, body)
                await response(scope, receive, send)
            finally:
                limits.leave(key)
        except ClientDisconnect:
            logger.debug("The client closed the connection before the answer")
        finally:
            body.release()

    async def _run(self, request: Request, key: bytes, credentials: Credentials | None, body: Body) -> Response:
        pool = self._proxy.pool
        try:
            clients = await pool.enter(key, credentials)
        except HttpError as error:
            return error_response(error, self.media_type)
        try:
            return await self._handler(Call(self._proxy, request, clients, body))
        except HttpError as error:
            return error_response(error, self.media_type)
        except ClientError as error:
            if isinstance(error, AuthenticationFailed):
                pool.discard(clients)
            return error_response(of_client(error), self.media_type)
        finally:
            pool.leave(clients)


def parse_json(body: bytes) -> Any:
    """Return the JSON of a body. Raises HttpError."""
    try:
        if _LONG_NUMBER not in body.translate(_DIGITS_AS_ZEROS):
            return orjson.loads(body)
        return json.loads(body, parse_constant=_refuse_constant)  # orjson rounds integers of more than 64 bits
    except (ValueError, RecursionError) as error:
        raise HttpError(400, 400, f"The body is not JSON: {error}") from None


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def dump_json(value: object) -> bytes:
    """Return a value from `parse_json` as compact JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits
        return json_bytes(value)


def json_response(
    content: object, status: int = 200, media_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer in JSON."""
    return Response(orjson.dumps(content), status, headers, media_type)
