"""All listeners and connections of one broker."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from ottla.network.acceptor import Acceptor, Service
from ottla.network.admission import Admission
from ottla.network.connection import Connection, Dispatch
from ottla.network.connections import Connections
from ottla.network.limits import Limits

if TYPE_CHECKING:
    from ottla.network.listener_tls import ListenerTls


class Server:
    """Accepts connections of several listeners, until it is closed."""

    TICKS_PER_IDLE_TIME = 20

    def __init__(self, dispatch: Dispatch, limits: Limits | None = None) -> None:
        self.connections: Connections[Connection] = Connections(limits or Limits())
        self.admission = Admission(self.connections)
        self.dispatch = dispatch
        self._acceptors: list[Acceptor] = []
        self._sweeper: asyncio.TimerHandle | None = None

    def listen(
        self,
        listener: str,
        sock: socket.socket,
        dispatch: Dispatch | None = None,
        first_frame_bytes: int | None = None,
        tls: ListenerTls | None = None,
    ) -> None:
        """Accept connections of `listener` on a bound socket; `dispatch` handles their requests if it is given.

        `first_frame_bytes` limits the size of frames until `Connection.limit_frames` is called.
        """
        service = Service(listener, dispatch or self.dispatch, first_frame_bytes, tls)
        acceptor = Acceptor(self.connections, self.admission, service, sock)
        self._acceptors.append(acceptor)
        acceptor.start(self.connections.limits.backlog)
        if self._sweeper is None:
            self._sweep()

    def stop_listening(self, listener: str) -> None:
        """Close the sockets of `listener`; its connections stay open."""
        for acceptor in self._acceptors:
            if acceptor.listener == listener:
                acceptor.close()
        self._acceptors = [each for each in self._acceptors if each.listener != listener]

    @property
    def listeners(self) -> list[str]:
        """The names of the listeners that accept connections."""
        return [each.listener for each in self._acceptors]

    async def close(self, within_s: float) -> None:
        """Stop accepting, wait up to `within_s` for requests in progress, close all connections."""
        connections = self.connections
        connections.draining = True
        for acceptor in self._acceptors:
            acceptor.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while connections and loop.time() < deadline:
            for connection in connections:
                if not connection.is_busy:
                    connection.close()
            await asyncio.sleep(0.005)
        for connection in connections:
            connection.abort()
        while connections and loop.time() < deadline + 0.5:
            await asyncio.sleep(0.005)

    def _sweep(self) -> None:
        """Sweep all connections, several times within the shortest time after which one is closed."""
        limits = self.connections.limits
        shortest_ms = min((ms for ms in (limits.max_idle_ms, limits.slow_reader_ms) if ms > 0), default=60_000)
        interval_ms = min(max(shortest_ms / self.TICKS_PER_IDLE_TIME, 50), 5_000)
        self.connections.sweep(interval_ms)
        self._sweeper = asyncio.get_running_loop().call_later(interval_ms / 1000, self._sweep)
