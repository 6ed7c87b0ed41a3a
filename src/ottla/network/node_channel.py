"""Connections from this node to other nodes of the cluster.

    channel = NodeChannel("10.0.0.2", 9093, client_id="raft-client-1", on_lost=...)
    channel.send(request, timeout_s=2.0).on_done(...)

A channel opens its connection for the first request and reopens it for a later one. After a failed attempt, requests
fail immediately until the backoff has passed (Kafka's `reconnect.backoff.ms`): callers retry by their own rules.

Requests are sent in the order of the calls and answered in that order: a request that waits at the other node, e.g. a
Fetch, delays those behind it. Use another channel for requests that must not wait. A request without an answer within
its timeout closes the connection, and all requests in flight fail.

`on_lost` reports that the other node closed the connection or refuses it, so that its process has probably ended. A
timeout is not reported: the node may only be slow. All methods must be called on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ottla.common.completion import Completion
from ottla.common.jitter import random_share
from ottla.common.values import value
from ottla.network.client import ClientConnection
from ottla.network.errors import (
    AuthenticationRefused,
    ConnectFailed,
    ConnectionClosed,
    NetworkError,
    TlsRefused,
    UnsupportedRequest,
)
from ottla.protocol.message import Message
from ottla.protocol.registry import API

if TYPE_CHECKING:
    import ssl

    from ottla.network.sasl import SaslSource

logger = logging.getLogger(__name__)

# Requests that wait for a connection, per channel.
MOST_WAITING: Final = 1_000
# The first of this many denied connections is logged: about one line in a minute.
DENIALS_PER_LINE: Final = 120
CLOSED_BY_THIS_NODE: Final = "The channel was closed by this node"


@value
class ChannelOptions:
    """How connections are opened, with the values of Kafka's controllers."""

    connect_timeout_s: float = 10.0
    backoff_s: float = 0.05
    backoff_max_s: float = 0.5
    """After each failed attempt the backoff doubles, up to this, and varies by a fifth."""
    tls: Callable[[], ssl.SSLContext] | None = None
    """Returns the context of a new connection; None without TLS."""
    sasl: SaslSource | None = None
    advice: str = ""
    """Ends the log line about nodes that do not authenticate each other: the settings to check."""


DEFAULT_OPTIONS: Final = ChannelOptions()


@value
class _Request:
    """A request, the highest and lowest version in which it may be sent, and when it fails, in the loop's time."""

    message: Message
    version: int | None
    least_version: int
    timeout_s: float
    expires_s: float
    completion: Completion[Message]


class _Outcome:
    """Takes the outcome of a request from its connection."""

    __slots__ = ("_completion",)

    def __init__(self, completion: Completion[Message]) -> None:
        self._completion = completion

    def done(self) -> bool:
        return self._completion.done

    def set_result(self, response: Message | None, /) -> None:
        assert response is not None, "requests without a response are not sent between nodes"
        self._completion.complete(response)

    def set_exception(self, error: NetworkError, /) -> None:
        self._completion.fail(error)


class NodeChannel:
    """One connection to another node, opened when it is needed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        on_lost: Callable[[], None] | None = None,
        options: ChannelOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._on_lost = on_lost
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._connection: ClientConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._waiting: deque[_Request] = deque()
        self._expiry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._retry_s = 0.0
        self._problem: NetworkError | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<NodeChannel {self.host}:{self.port}>"

    @property
    def is_connected(self) -> bool:
        """Whether a request would be sent immediately."""
        return self._connection is not None and not self._connection.closed

    def send(
        self, request: Message, *, timeout_s: float, version: int | None = None, least_version: int = 0
    ) -> Completion[Message]:
        """Send a request, in `version` or in the highest common one; completes with the response.

        Fails with a NetworkError: ConnectFailed and UnsupportedRequest (no common version from `least_version` on) if
        it was not sent; ConnectionClosed and NoAnswer if the other node may have executed it.
        """
        completion: Completion[Message] = Completion()
        connection = self._connection
        if self._is_closed:
            completion.fail(ConnectionClosed(CLOSED_BY_THIS_NODE))
        elif connection is not None and not connection.closed:
            _send(connection, request, version, least_version, timeout_s, completion)
        elif self._opening is None and self._loop.time() < self._retry_s:
            completion.fail(self._problem or ConnectFailed(f"No connection to {self.host}:{self.port}"))
        elif len(self._waiting) >= MOST_WAITING:
            completion.fail(ConnectFailed(f"{MOST_WAITING} requests wait for a connection to {self.host}:{self.port}"))
        else:
            expires_s = self._loop.time() + timeout_s
            self._wait(_Request(request, version, least_version, timeout_s, expires_s, completion))
        return completion

    def close(self) -> None:
        """Close the connection; all requests fail with ConnectionClosed. `on_lost` is not called."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
        self._fail_waiting(ConnectionClosed(CLOSED_BY_THIS_NODE))

    async def wait_closed(self, timeout_s: float) -> None:
        """After `close`: wait until the socket is closed."""
        if self._opening is not None:
            await asyncio.wait([self._opening], timeout=timeout_s)
        if self._connection is not None:
            await self._connection.wait_lost(timeout_s)

    # -- requests ----------------------------------------------------------------------------------------------

    def _wait(self, request: _Request) -> None:
        self._waiting.append(request)
        self._set_expiry()
        if self._opening is None:
            name = f"connect to {self.host}:{self.port}"
            self._opening = self._loop.create_task(self._open(), name=name)

    def _set_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._waiting:
            self._expiry = self._loop.call_at(min(each.expires_s for each in self._waiting), self._expire)

    def _expire(self) -> None:
        now_s = self._loop.time()
        late = [each for each in self._waiting if each.expires_s <= now_s]
        self._waiting = deque(each for each in self._waiting if each.expires_s > now_s)
        self._set_expiry()
        for each in late:
            name = API[each.message.API_KEY].name
            text = f"No connection to {self.host}:{self.port} within {each.timeout_s:g} s: {name} was not sent"
            each.completion.fail(ConnectFailed(text))

    def _fail_waiting(self, error: NetworkError) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._set_expiry()
        for each in waiting:
            each.completion.fail(error)

    # -- the connection ----------------------------------------------------------------------------------------

    async def _open(self) -> None:
        options = self._options
        try:
            connection = await ClientConnection.connect(
                self.host,
                self.port,
                client_id=self._client_id,
                timeout_s=options.connect_timeout_s,
                tls=None if options.tls is None else options.tls(),
                sasl=options.sasl,
            )
        except NetworkError as error:
            self._failed(error)
            return
        finally:
            self._opening = None
        self._connection = connection
        self._failures = 0
        connection.on_close(lambda: self._closed(connection))
        waiting, self._waiting = self._waiting, deque()
        self._set_expiry()
        now_s = self._loop.time()
        for each in waiting:
            left_s = max(each.expires_s - now_s, 0.0)
            _send(connection, each.message, each.version, each.least_version, left_s, each.completion)

    def _failed(self, error: NetworkError) -> None:
        """No connection: fail the waiting requests, and do not try again for some time."""
        options = self._options
        backoff_s = min(options.backoff_max_s, options.backoff_s * 2 ** min(self._failures, 10))
        self._failures += 1
        self._retry_s = self._loop.time() + backoff_s * (0.8 + 0.4 * random_share())
        self._problem = error
        is_denied = isinstance(error, (AuthenticationRefused, TlsRefused))
        # Without a certificate that the other node wants, TLS 1.3 ends after its handshake, perhaps without an alert.
        is_doubtful = options.tls is not None and isinstance(error.__cause__, ConnectionClosed)
        advice = f"; {options.advice}" if options.advice and (is_denied or is_doubtful) else ""
        if is_denied and self._failures % DENIALS_PER_LINE == 1:
            text = "Connection to node at %s:%d failed authentication due to: %s%s"
            logger.error(text, self.host, self.port, error, advice)
        elif self._failures == 1:
            logger.info("Connection to node at %s:%d failed: %s%s", self.host, self.port, error, advice)
        # The error of a TLS handshake is an OSError, too, but the process on the other side runs.
        is_refused = isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, TimeoutError)
        if is_refused and not is_denied and self._on_lost is not None:
            self._on_lost()
        self._fail_waiting(error)

    def _closed(self, connection: ClientConnection) -> None:
        if self._is_closed:
            return
        if connection.was_lost and self._on_lost is not None:
            self._on_lost()


def _send(
    connection: ClientConnection,
    message: Message,
    version: int | None,
    least_version: int,
    timeout_s: float,
    completion: Completion[Message],
) -> None:
    try:
        if version is None:
            version = connection.highest_version(message.API_KEY, least=least_version)
        connection.send_to(_Outcome(completion), message, version=version, timeout_s=timeout_s)
    except UnsupportedRequest as error:
        completion.fail(error)


class NodeChannels:
    """The channels of one purpose to several nodes, one for each node id. Another endpoint of a node replaces it."""

    def __init__(
        self,
        client_id: str,
        on_lost: Callable[[int], None] | None = None,
        options: ChannelOptions = DEFAULT_OPTIONS,
    ) -> None:
        """`on_lost(node_id)`: see `NodeChannel`."""
        self._client_id = client_id
        self._on_lost = on_lost
        self._options = options
        self._channels: dict[int, NodeChannel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def to(self, node_id: int, host: str, port: int) -> NodeChannel:
        """The channel to a node at this endpoint."""
        channel = self._channels.get(node_id)
        if channel is not None:
            if (channel.host, channel.port) == (host, port):
                return channel
            channel.close()
        on_lost = self._on_lost
        report = None if on_lost is None else lambda: on_lost(node_id)
        channel = NodeChannel(host, port, client_id=self._client_id, on_lost=report, options=self._options)
        self._channels[node_id] = channel
        return channel

    def retain(self, node_ids: Collection[int]) -> None:
        """Close the channels to all other nodes."""
        for node_id in self._channels.keys() - set(node_ids):
            self._channels.pop(node_id).close()

    def close(self) -> None:
        """Close all channels; their requests fail with ConnectionClosed."""
        self.retain(())

    async def aclose(self, timeout_s: float) -> None:
        """Close all channels, and wait until their sockets are closed."""
        channels = list(self._channels.values())
        self.close()
        for channel in channels:
            await channel.wait_closed(timeout_s)
