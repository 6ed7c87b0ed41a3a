"""The console as one application (`running`), and as a process on its listeners (`run`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ottla.common.failure import Failure
from ottla.console import login
from ottla.console.calls import COOKIE, Call, Console, Handler, Problem, answer, problem_response, templates
from ottla.console.pages import ROUTES, tail
from ottla.console.protection import Protected
from ottla.console.sessions import Sessions
from ottla.console.settings import ConsoleSettings
from ottla.web.guard import BodyLimits
from ottla.web.listeners import BoundListener, bind_all, parse_listener, tls_config
from ottla.web.server import ServerLimits, serve, stop_signals

__all__ = ["Call", "run", "running", "serve_until"]


_STATIC: Final = Path(__file__).parent / "static"
_BODY_BYTES: Final = 4 * 1024 * 1024
_STOP_S: Final = 3


@contextlib.asynccontextmanager
async def running(settings: ConsoleSettings, hosts: frozenset[str], stop: asyncio.Event) -> AsyncIterator[ASGIApp]:
    """Return the console as an application of ASGI, and close all clients at the end."""
    console = Console(settings, Sessions(settings, time.monotonic), templates(), {})

    def route(path: str, handler: Handler, methods: tuple[str, ...]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await answer(request, console, handler)

        return Route(path, endpoint, methods=list(methods))

    async def not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        token = request.cookies.get(COOKIE, "")
        problem = Problem(error.status_code, f"{request.url.path[:200]}: {error.detail}")
        return await asyncio.to_thread(problem_response, request, console, problem, token)

    routes = [
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/healthz", _alive),
        *login.routes(console),
        *tail.routes(console, stop),
        *(route(path, handler, methods) for path, handler, methods in ROUTES),
    ]
    # A redirect to a path without the slash would name a host that the request chose.
    app = Starlette(routes=routes, exception_handlers={HTTPException: not_found})
    app.router.redirect_slashes = False
    try:
        yield Protected(app, hosts)
    finally:
        await asyncio.to_thread(console.sessions.close)


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def run(settings: ConsoleSettings, ready: Callable[[Sequence[BoundListener]], None]) -> None:
    """Serve until SIGINT or SIGTERM. Raises Failure if the console cannot listen."""
    with stop_signals() as stop:
        await serve_until(stop, settings, ready)


async def serve_until(
    stop: asyncio.Event,
    settings: ConsoleSettings,
    ready: Callable[[Sequence[BoundListener]], None] = lambda _: None,
) -> None:
    """Serve until `stop` is set; `ready` gets the listeners when browsers can connect."""
    try:
        addresses = (parse_listener(settings.listen),)
    except ValueError as error:
        raise Failure(f"--listen: {error}", exit_code=2) from error
    tls = tls_config(settings.tls)
    listeners = bind_all(addresses, tls, authenticates=settings.uses_sasl, insecure=settings.insecure)
    hosts = settings.hosts | {each.host for each in addresses}
    limits = ServerLimits(BodyLimits(_BODY_BYTES), connections=512, stop_s=_STOP_S)
    try:
        async with running(settings, hosts, stop) as app:
            await serve(app, listeners, stop, limits, access_log=settings.access_log, ready=lambda: ready(listeners))
    finally:
        for listener in listeners:
            listener.close()
