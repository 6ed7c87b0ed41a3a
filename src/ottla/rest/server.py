"""The proxy as one application (`running`), and as a process on its listeners (`run`).

Each API is a module with `routes(proxy)`. State of an API that ends with time is in `proxy.parts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.common.failure import Failure
from ottla.rest import openapi
from ottla.rest.calls import ENCODED, Proxy
from ottla.rest.events import routes as events
from ottla.rest.limits import Limits
from ottla.rest.pool import ClientPool
from ottla.rest.schemas import registry
from ottla.rest.settings import RestSettings
from ottla.rest.v2 import routes as v2
from ottla.rest.v3 import routes as v3
from ottla.web.errors import EXCEPTION_HANDLERS
from ottla.web.guard import BodyLimits
from ottla.web.listeners import BoundListener, bind_all, parse_listener, tls_config
from ottla.web.server import ServerLimits, serve, stop_signals

SWEEP_S: Final = 1.0


@contextlib.asynccontextmanager
async def running(settings: RestSettings, stop: asyncio.Event) -> AsyncIterator[ASGIApp]:
    """Return the proxy as an application of ASGI, and close all clients at the end."""
    proxy = Proxy(settings, Limits(settings), ClientPool(settings, time.monotonic), stop)
    # Routes are tried in this order; reads and writes of records are the first of v2.
    routes = [*v2.routes(proxy), *events.routes(proxy), *v3.routes(proxy), *openapi.routes()]
    proxy.parts[registry.PART] = registry.Schemas(settings)
    app = Starlette(routes=routes, exception_handlers=EXCEPTION_HANDLERS)
    sweeper = asyncio.create_task(_sweep(proxy))
    try:
        yield _for_web_pages(_without_trailing_slash(with_encoded_slashes(app)), settings)
    finally:
        sweeper.cancel()
        for part in proxy.parts.values():
            await part.close()
        await proxy.pool.close()


def _without_trailing_slash(app: ASGIApp) -> ASGIApp:
    """Return the application whose paths may end with a slash, as in Confluent's proxy."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path.rstrip("/") or "/"}
        await app(scope, receive, send)

    return call


def with_encoded_slashes(app: ASGIApp) -> ASGIApp:
    """Return the application whose paths may have names with an encoded slash, `%2F`: the name of a group can have one.

    A slash in a name must not separate segments, but servers decode it before routes see the path. In such a path,
    slashes and percent signs of names stay encoded; `Call.path` decodes them.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2f" in raw.lower():
            segments = [unquote(each) for each in raw.decode("latin-1").split("/")]
            path = "/".join(each.replace("%", "%25").replace("/", "%2F") for each in segments)
            scope = {**scope, "path": path.rstrip("/") or "/", ENCODED: True}
        await app(scope, receive, send)

    return call


def _for_web_pages(app: ASGIApp, settings: RestSettings) -> ASGIApp:
    """Return the application with the headers that let pages of other origins read its answers."""
    if not settings.access_control_allow_origin:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.access_control_allow_origin,
        allow_methods=settings.access_control_allow_methods,
        allow_headers=settings.access_control_allow_headers,
    )


async def _sweep(proxy: Proxy) -> None:
    """Close what is idle, until the proxy ends."""
    while True:
        await asyncio.sleep(SWEEP_S)
        proxy.pool.sweep()
        for part in proxy.parts.values():
            part.sweep()


async def run(settings: RestSettings, *, insecure: bool, ready: Callable[[Sequence[BoundListener]], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises Failure if the proxy cannot listen."""
    with stop_signals() as stop:
        await serve_until(stop, settings, insecure=insecure, ready=ready)


async def serve_until(
    stop: asyncio.Event,
    settings: RestSettings,
    *,
    insecure: bool = False,
    ready: Callable[[Sequence[BoundListener]], None] = lambda _: None,
) -> None:
    """Serve until `stop` is set; `ready` gets the listeners when clients can connect."""
    try:
        addresses = tuple(map(parse_listener, settings.listeners))
    except ValueError as error:
        raise Failure(f"listeners: {error}", exit_code=2) from error
    authenticates = settings.uses_sasl and not settings.anonymous_as_proxy
    listeners = bind_all(addresses, tls_config(settings.tls), authenticates=authenticates, insecure=insecure)
    limits = ServerLimits(BodyLimits(settings.request_max_bytes, streams=v3.is_stream))
    try:
        async with running(settings, stop) as app:
            await serve(app, listeners, stop, limits, access_log=settings.access_log, ready=lambda: ready(listeners))
    finally:
        for listener in listeners:
            listener.close()
