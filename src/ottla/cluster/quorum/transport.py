"""How a replica sends requests to the other nodes of the quorum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.common.completion import Completion
from ottla.network.node_channel import DEFAULT_OPTIONS, ChannelOptions, NodeChannels
from ottla.protocol.message import Message

if TYPE_CHECKING:
    from ottla.raft.values import Node


class QuorumTransport(Protocol):
    """Sends requests. Nothing is promised: a request or its response may be lost."""

    def start(self, on_lost: Callable[[int], None]) -> None:
        """Begin; `on_lost(node_id)` is called when a node closed its connection or refuses one."""
        ...

    def send(self, to: Node, request: Message, *, least_version: int, timeout_s: float) -> Completion[Message]:
        """Send a request in the highest common version; fails with NetworkError."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class ChannelTransport:
    """Connections to the controller listeners of the other nodes. Create it on the event loop."""

    def __init__(self, node_id: int, options: ChannelOptions = DEFAULT_OPTIONS) -> None:
        self._client_id = f"raft-client-{node_id}"
        self._options = options
        self._channels: NodeChannels | None = None

    def start(self, on_lost: Callable[[int], None]) -> None:
        """See `QuorumTransport`."""
        self._channels = NodeChannels(self._client_id, on_lost, self._options)

    def send(self, to: Node, request: Message, *, least_version: int, timeout_s: float) -> Completion[Message]:
        """See `QuorumTransport`."""
        assert self._channels is not None, "the transport was not started"
        channel = self._channels.to(to.node_id, to.host, to.port)
        return channel.send(request, timeout_s=timeout_s, least_version=least_version)

    def close(self) -> None:
        """See `QuorumTransport`."""
        if self._channels is not None:
            self._channels.close()

    async def aclose(self, timeout_s: float) -> None:
        """Close all connections, and wait until their sockets are closed."""
        if self._channels is not None:
            await self._channels.aclose(timeout_s)
