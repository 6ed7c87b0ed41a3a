# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Counts requests by API, and the bytes of clients: the part of a `Meter` that runs for each request.

One source for C and Python: Cython compiles this file with the types of `_request_counter.pxd`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython  # noqa: F401

from ottla.broker.metrics.requests import FETCH, FOLLOWER_FETCH
from ottla.network.connection import FETCHED_BY_REPLICA

if TYPE_CHECKING:
    from ottla.network.connection import Connection, Frames

USAGE = "client usage"
"""The key in `Connection.state` of the traffic of the connection's client."""
_USAGE = USAGE
_REPLICA = FETCHED_BY_REPLICA
_PRODUCE = 0
_FETCH = FETCH
_FOLLOWER_FETCH = FOLLOWER_FETCH


class Traffic:
    """The counters of a client that its requests change: bytes of Produce requests and Fetch responses, and time."""

    produced_bytes: int
    fetched_bytes: int
    request_ns: int

    def __init__(self) -> None:
        self.produced_bytes = 0
        self.fetched_bytes = 0
        self.request_ns = 0


class RequestCounter:
    """Counts in `counts`, by API key, and in the traffic of clients; replicas share `replicas`.

    The first `exact` requests of an API are measured, then half as many of each doubling of their number. So a measured
    request stands for at most `2 / exact` of the requests before it.

    `bind` sets the traffic of a new connection, and `follow` sets `replicas` once a replica has fetched on it.
    """

    _counts: list[int]
    _exact: int
    _replicas: Traffic
    _bind: Callable[[Connection, str | None], Traffic]
    _follow: Callable[[Connection], None]

    def __init__(
        self,
        counts: list[int],
        exact: int,
        replicas: Traffic,
        bind: Callable[[Connection, str | None], Traffic],
        follow: Callable[[Connection], None],
    ) -> None:
        self._counts = counts
        self._exact = exact
        self._replicas = replicas
        self._bind = bind
        self._follow = follow

    def due(self, connection: Connection, key: int, client_id: str | None, frame_bytes: int) -> int:
        """Count a request; return how many requests its times stand for, or 0 if it must not be measured."""
        state = connection.state
        usage: Traffic | None = state.get(_USAGE)  # type: ignore[assignment]
        if usage is None:
            usage = self._bind(connection, client_id)
        if key == _PRODUCE:
            usage.produced_bytes += frame_bytes
        elif key == _FETCH and usage is self._replicas:
            key = _FOLLOWER_FETCH
        number = self._counts[key] + 1
        self._counts[key] = number
        shift = 0
        while (number - 1) >> shift >= self._exact:
            shift += 1
        return 0 if number & ((1 << shift) - 1) else 1 << shift

    def fetched(self, connection: Connection, response: Frames) -> None:
        """Count the bytes of a response to a Fetch."""
        state = connection.state
        usage: Traffic = state[_USAGE]  # type: ignore[assignment]
        if _REPLICA in state:
            if usage is not self._replicas:
                self._follow(connection)
        elif response is not None:
            size = 0
            for part in response:
                size += len(part)
            usage.fetched_bytes += size
