"""`serve` runs an ASGI application on its listeners until a stop: uvicorn without its signals, logs and reloading.

The caller owns the event loop, binds the listeners (`listeners.bind_all`), and stops the server with an event;
`stop_signals` sets one on SIGINT and SIGTERM. A stop closes the listeners, lets requests finish within `stop_s`, and
cancels the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import uvicorn
from starlette.middleware.errors import ServerErrorMiddleware

from ottla.web.connection import ConnectionLimits, connection_type
from ottla.web.errors import unhandled
from ottla.web.guard import BodyLimits, Guard
from ottla.web.listeners import BoundListener

if TYPE_CHECKING:
    import socket

    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

_ONE_REQUEST_S: Final = 0.5
_TLS_HANDSHAKE_S: Final = 10.0
_BACKLOG: Final = 1024
_RELOAD_EVERY: Final = 10


class ServerLimits(NamedTuple):
    """Limits of bodies, connections and the stop."""

    body: BodyLimits = BodyLimits()
    connection: ConnectionLimits = ConnectionLimits()
    connections: int = 4096
    stop_s: int = 10


DEFAULT_LIMITS: Final = ServerLimits()


async def serve(
    app: ASGIApp,
    listeners: Sequence[BoundListener],
    stop: asyncio.Event,
    limits: ServerLimits = DEFAULT_LIMITS,
    *,
    access_log: bool = False,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve an application until `stop` is set; `ready` is called when clients can connect."""
    guarded = ServerErrorMiddleware(Guard(app, limits.body, access_log=access_log), handler=unhandled)
    server = _Server(guarded, listeners, stop, limits)
    await server.run_until_stopped(ready)


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Return an event that SIGINT and SIGTERM set; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    first_signal_s = 0.0

    def stop_on(number: signal.Signals) -> None:
        nonlocal first_signal_s
        if stop.is_set():
            if loop.time() - first_signal_s >= _ONE_REQUEST_S:
                logger.warning("Stopping at once: received %s a second time", number.name)
                os._exit(128 + number)
            return
        logger.info("Stopping: %s", number.name)
        first_signal_s = loop.time()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_on, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """uvicorn's server with a TLS context for each listener, and without a poll for its stop."""

    def __init__(
        self, app: ASGIApp, listeners: Sequence[BoundListener], stop: asyncio.Event, limits: ServerLimits
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection_type(limits.connection, None),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=limits.connections,
                timeout_keep_alive=limits.connection.keep_alive_s,
                timeout_graceful_shutdown=limits.stop_s,
            )
        )
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._limits = limits
        self._listeners = listeners
        self._stop = stop
        self._of: dict[BoundListener, list[asyncio.Server]] = {}

    async def run_until_stopped(self, ready: Callable[[], None]) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        try:
            await self.on_tick(0)  # the header Date
            for listener in self._listeners:
                self._of[listener] = await self._listen(listener)
            self.started = True
            ready()
            await self.main_loop()
        finally:
            self.servers = [each for servers in self._of.values() for each in servers]
            await self.shutdown([sock for each in self._listeners for sock in each.sockets])

    async def _listen(self, listener: BoundListener) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        tls = listener.tls
        protocol = connection_type(self._limits.connection, None if tls is None else tls.principal_of)

        def connection() -> asyncio.Protocol:
            return protocol(self.config, self.server_state, {})

        security: dict[str, Any] = {}
        if tls is not None:
            security = {"ssl": tls.context, "ssl_handshake_timeout": _TLS_HANDSHAKE_S}
        return [
            await loop.create_server(connection, sock=sock, backlog=_BACKLOG, **security)
            for sock in listener.duplicates()
        ]

    async def main_loop(self) -> None:
        """Renew the header Date each second, and read changed certificates."""
        second = 0
        while not self._stop.is_set():
            second += 1
            await self.on_tick(0)
            if second % _RELOAD_EVERY == 0:
                await self._reload()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stop.wait()

    async def _reload(self) -> None:
        for listener in self._listeners:
            if listener.reload():
                old, self._of[listener] = self._of[listener], await self._listen(listener)
                for each in old:
                    each.close()
                logger.info("%s uses a new certificate or trust store for new connections", listener.address.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listeners, and let requests finish."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
