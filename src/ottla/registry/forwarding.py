"""Forwards requests to the primary, with the credentials of the caller.

Any instance accepts any request. A change that must append raises NotPrimary on the other instances; this layer around
the routes then sends the request as it arrived to the primary, and returns its response. A request that was forwarded
already (header `X-Forward`) is not forwarded again: two nodes that take each other for the primary would send it back
and forth.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx
from starlette.datastructures import Headers
from starlette.responses import Response

from ottla.registry.errors import RegistryError, forwarding_failed, unknown_leader
from ottla.registry.writer import NotPrimary
from ottla.web.errors import HttpError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORWARDED: Final = "x-forward"
_HEADERS: Final = ("authorization", "content-type", "accept", "confluent-accept-unknown-properties", "traceparent")
_RETURNED: Final = ("content-type", "www-authenticate", "retry-after")


class ForwardingLimits(NamedTuple):
    """How long the primary may take."""

    connect_s: float = 5.0
    read_s: float = 60.0


class Forwarding:
    """An ASGI application around another one. `primary_url` returns None if the primary is unknown or this node."""

    def __init__(
        self,
        app: ASGIApp,
        primary_url: Callable[[], str | None],
        limits: ForwardingLimits = ForwardingLimits(),  # noqa: B008 - immutable
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._app = app
        self._primary_url = primary_url
        timeout = httpx.Timeout(limits.read_s, connect=limits.connect_s)
        # Proxies of the environment are for the internet, not for nodes of one registry.
        self._client = httpx.AsyncClient(timeout=timeout, verify=True if tls is None else tls, trust_env=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Raises HttpError if the primary cannot be reached."""
        parts: list[bytes] = []

        async def keep() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                parts.append(message.get("body", b""))
            return message

        try:
            await self._app(scope, keep, send)
        except NotPrimary:
            try:
                response = await self._forward(scope, b"".join(parts))
            except RegistryError as error:
                raise HttpError(error.status, error.error_code, error.message) from error
            await response(scope, receive, send)

    async def _forward(self, scope: Scope, body: bytes) -> Response:
        given = Headers(scope=scope)
        if FORWARDED in given:
            raise unknown_leader("The request was forwarded to a node that is not the leader")
        url = self._primary_url()
        if url is None:
            raise unknown_leader("The leader is unknown at this moment")
        headers = {name: given[name] for name in _HEADERS if name in given}
        headers[FORWARDED] = "true"
        target = url + scope["raw_path"].decode("latin-1")
        if scope["query_string"]:
            target += f"?{scope['query_string'].decode('latin-1')}"
        try:
            response = await self._client.request(scope["method"], target, content=body, headers=headers)
        # With TLS 1.3, the leader refuses this node's certificate after the handshake. httpx lets that error pass.
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            reason = str(error) or type(error).__name__
            raise forwarding_failed(f"Error while forwarding the request to the leader {url}: {reason}") from error
        returned = {name: response.headers[name] for name in _RETURNED if name in response.headers}
        return Response(response.content, response.status_code, returned)
