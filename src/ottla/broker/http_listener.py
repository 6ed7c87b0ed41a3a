"""The bound address of an HTTP endpoint of a node, and its life: bind, open, close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.config import Listener, parse_address
from ottla.metrics.http import Endpoint
from ottla.network.sockets import bind, is_loopback

if TYPE_CHECKING:
    import socket

    from ottla.config import BrokerConfig

Factory = Callable[[], asyncio.BaseProtocol]
_BACKLOG: Final = 32


class HttpListener:
    """Bound at its creation; `open` follows, and `close` may be called at any time."""

    def __init__(self, config: BrokerConfig, name: str, setting: str) -> None:
        """Bind the address of a setting. Raises ListenError with the name."""
        host, port = parse_address(config.text(setting) or "")
        self._sockets: list[socket.socket] = bind(Listener(name, host, port), config)
        self.address: tuple[str, int] = self._sockets[0].getsockname()[:2]
        """The bound address."""
        self.is_reachable = not all(map(is_loopback, self._sockets))
        """Whether other machines may reach it."""
        self._servers: list[asyncio.Server] = []
        self._endpoint: Endpoint | None = None

    async def open(self, endpoint: Endpoint, accept: Factory | None = None) -> None:
        """Accept connections; `accept` makes their protocols instead of the endpoint, for TLS."""
        self._endpoint = endpoint
        for sock in self._sockets:
            self._servers.append(
                await endpoint.loop.create_server(accept or endpoint.connection, sock=sock, backlog=_BACKLOG)
            )

    def url(self, scheme: str = "http") -> str:
        """Return the address as the beginning of a URL."""
        host, port = self.address
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def close(self) -> None:
        """Close the sockets and all connections at once."""
        for server in self._servers:
            server.close()
        if self._endpoint is not None:
            self._endpoint.close()
        for sock in self._sockets:
            sock.close()
