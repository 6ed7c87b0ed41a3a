"""The SASL session of a client's connection: logs in, and again before the session ends (KIP-368).

While it logs in again, requests of the connection are held back: the broker accepts no others then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

from ottla.common.jitter import random_share
from ottla.network.errors import AuthenticationRefused, ConnectionClosed, NetworkError
from ottla.network.sasl import SaslSource, log_in, renewal_delay_s
from ottla.protocol.message import Message
from ottla.security.mechanism import SaslClient

RENEWAL_TIMEOUT_S: Final = 30.0


class HeldTransport(asyncio.Transport):
    """Replaces the transport while a session is renewed, and collects the written bytes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self.transport = transport
        self.parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.parts.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        # Copy the bytes: with acks=0 the caller may reuse its buffers.
        self.parts.append(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()


class Authenticated(Protocol):
    """The connection of a session."""

    address: str
    closed: bool
    last_used: float
    transport: asyncio.Transport | None

    @property
    def in_flight(self) -> int: ...

    def highest_version(self, api_key: int) -> int: ...

    def send_nowait(self, request: Message, *, version: int, timeout_s: float) -> asyncio.Future[Message | None]: ...

    def close(self) -> None: ...

    def fail(self, problem: NetworkError) -> None:
        """Close the connection at once; `problem` is the reason that its requests get."""
        ...


class Session:
    """Logs one connection in, with exchanges of `source`."""

    def __init__(self, connection: Authenticated, source: SaslSource, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._source = source
        self._loop = loop
        self._began_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def log_in(self, exchange: SaslClient, timeout_s: float) -> None:
        """Authenticate, and set the timer of the renewal. Raises AuthenticationRefused."""
        connection = self._connection

        def ask(request: Message, version: int) -> asyncio.Future[Message | None]:
            held = connection.transport
            if isinstance(held, HeldTransport):
                connection.transport = held.transport
            try:
                return connection.send_nowait(request, version=version, timeout_s=timeout_s)
            finally:
                connection.transport = held

        lifetime_ms = await log_in(connection.address, exchange, connection.highest_version, ask)
        self._began_s = self._loop.time()
        if lifetime_ms > 0:
            delay_s = renewal_delay_s(lifetime_ms, random_share())
            self._timer = self._loop.call_later(delay_s, self._renew)

    def cancel(self) -> None:
        """The connection is lost: do not renew the session."""
        if self._timer is not None:
            self._timer.cancel()

    def _renew(self) -> None:
        connection = self._connection
        if connection.closed:
            return
        if not connection.in_flight and connection.last_used <= self._began_s:
            # The connection was unused for a whole session. The next request opens another connection.
            connection.close()
            return
        self._renewal = self._loop.create_task(self._log_in_again(), name=f"log in again at {connection.address}")

    async def _log_in_again(self) -> None:
        """Renew the session; the connection ends if that fails."""
        connection = self._connection
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT_S):
                exchange = await self._source()
                if connection.closed or connection.transport is None:
                    return
                held = connection.transport = HeldTransport(connection.transport)
                await self.log_in(exchange, RENEWAL_TIMEOUT_S)
        except AuthenticationRefused as error:
            connection.fail(error)
        except (NetworkError, TimeoutError) as error:
            connection.fail(ConnectionClosed(f"The session with {connection.address} could not be renewed: {error}"))
        else:
            connection.transport = held.transport
            if not connection.closed:
                held.transport.writelines(held.parts)
