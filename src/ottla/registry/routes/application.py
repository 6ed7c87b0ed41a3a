"""The ASGI application of the API."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from ottla.registry import errors
from ottla.registry.errors import RegistryError
from ottla.registry.routes import compatibility, config, contexts, metadata, modes, schemas, subjects, versions
from ottla.registry.routes.paths import parse_path
from ottla.registry.routes.requests import Registry, Request
from ottla.registry.routes.responses import V1_JSON, consumes, error_body, negotiate, start_message
from ottla.registry.routes.router import Router

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

ROUTER: Final = Router(
    [
        *metadata.ROUTES,
        *schemas.ROUTES,
        *subjects.ROUTES,
        *versions.ROUTES,
        *compatibility.ROUTES,
        *config.ROUTES,
        *modes.ROUTES,
        *contexts.ROUTES,
    ]
)
_WITH_BODY: Final = frozenset({"POST", "PUT"})


def application(registry: Registry) -> ASGIApp:
    """Return the application over a registry."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        accept, content_type = _headers(scope)
        produced = negotiate(accept)
        method, extra = scope["method"], ()
        try:
            if produced is None:
                raise errors.http_error(406, "Not Acceptable")
            status, body = await _respond(registry, scope, receive, content_type)
        except _MethodError as error:
            status, body, extra = error.status, error_body(error), error.headers
        except RegistryError as error:
            status, body = error.status, error_body(error)
        await send(start_message(status, produced or V1_JSON, body, extra))
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    return app


class _MethodError(RegistryError):
    """The path exists, the method does not; or OPTIONS, which lists the methods."""

    def __init__(self, status: int, methods: Mapping[str, Any]) -> None:
        super().__init__(status, status, f"HTTP {status} Method Not Allowed" if status == 405 else "")
        allowed = sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])})
        self.headers: Any = ((b"allow", ",".join(allowed).encode()),)


async def _respond(registry: Registry, scope: Message, receive: Receive, content_type: bytes) -> tuple[int, bytes]:
    path = parse_path(scope["raw_path"])
    handlers, values = ROUTER.find(path.segments)
    if not handlers:
        raise errors.http_error(404, "Not Found")
    method = scope["method"]
    handler = handlers.get("GET" if method == "HEAD" else method)
    if handler is None:
        raise _MethodError(200 if method == "OPTIONS" else 405, handlers)
    if method in _WITH_BODY and not consumes(content_type):
        raise errors.http_error(415, "Unsupported Media Type")
    result = handler(Request(registry, scope, receive, path, values))
    body = await result if inspect.isawaitable(result) else result
    return (204, b"") if body is None else (200, body)


def _headers(scope: Message) -> tuple[bytes, bytes]:
    """Return the headers Accept and Content-Type; several headers Accept are one list."""
    accept = content_type = b""
    for name, value in scope["headers"]:
        if name == b"accept":
            accept = accept + b"," + value if accept else value
        elif name == b"content-type":
            content_type = value
    return accept, content_type
