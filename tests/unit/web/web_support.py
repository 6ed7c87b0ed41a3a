"""A small application on a real server, and a client of raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.web.connection import certificate_principal
from ottla.web.errors import EXCEPTION_HANDLERS, HttpError
from ottla.web.listeners import bind_all, parse_listener, tls_config
from ottla.web.responses import json_response
from ottla.web.server import DEFAULT_LIMITS, ServerLimits, serve

WITHIN_S = 20


async def echo(request: Request) -> Response:
    body = await request.body()
    return json_response({"bytes": len(body), "principal": certificate_principal(request.scope)})


async def fail(request: Request) -> Response:
    if request.query_params.get("known"):
        raise HttpError(404, 40401, "Subject 'a' not found.")
    raise RuntimeError("a defect")


class App:
    """The application; `release` ends the requests that wait."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = asyncio.Event()
        self.large = asyncio.Event()
        routes = [
            Route("/echo", echo, methods=["POST", "GET"]),
            Route("/fail", fail),
            Route("/large", self.send_large),
            Route("/wait", self.wait),
        ]
        self.app = Starlette(routes=routes, exception_handlers=dict(EXCEPTION_HANDLERS))

    async def send_large(self, request: Request) -> Response:
        self.large.set()
        return Response(b"x" * int(request.query_params["bytes"]))

    async def wait(self, _request: Request) -> Response:
        self.waiting.set()
        await self.release.wait()
        return json_response("released")


class Running(NamedTuple):
    port: int
    app: App
    stop: asyncio.Event
    server: asyncio.Task[None]


@contextlib.asynccontextmanager
async def running(
    limits: ServerLimits = DEFAULT_LIMITS, *, access_log: bool = False, tls: dict[str, str] | None = None
) -> AsyncIterator[Running]:
    """A server on a free port."""
    app, stop, ready = App(), asyncio.Event(), asyncio.Event()
    address = parse_listener("https://127.0.0.1:0" if tls else "127.0.0.1:0")
    listeners = bind_all((address,), tls_config(tls or {}), authenticates=False, insecure=False)
    serving = serve(app.app, listeners, stop, limits, access_log=access_log, ready=ready.set)
    server = asyncio.create_task(serving)
    async with asyncio.timeout(WITHIN_S):
        await ready.wait()
        yield Running(listeners[0].address.port, app, stop, server)
        stop.set()
        app.release.set()
        await server


class Client:
    """A connection that sends exactly these bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext | None = None) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 24))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> tuple[int, bytes, bytes]:
        """The status, the headers and the body of the next response."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
        )
        return status, head, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()
