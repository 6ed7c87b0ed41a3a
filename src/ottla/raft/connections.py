"""Requests in flight: at most one per node, with a timeout, and a pause after a failure.

A change of the role cancels all of them: a response that arrives later is ignored, because its id is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.values import state
from ottla.raft.messages import Request
from ottla.raft.values import Node

FOREVER = 1 << 62
LONGEST_DENIED_PAUSE_MS = 1000


@state
class _Connection:
    request_id: int
    request: Request | None
    until_ms: int
    """The end of the request's timeout, or, without a request, of the pause."""


class Connections:
    """The requests in flight, by the id of the node that received them. Times in milliseconds."""

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._connections: dict[int, _Connection] = {}
        self._denials: dict[int, int] = {}
        self.gone: set[int] = set()
        """The nodes that closed their connections or refuse them, since the last change of the role."""
        self.last_id = 0
        """The id of the request that was sent last."""

    def prune(self, now_ms: int) -> frozenset[int]:
        """Forget timeouts and pauses that are over. Returns the nodes that did not answer in time."""
        over = [(node, each) for node, each in self._connections.items() if each.until_ms <= now_ms]
        for node, _ in over:
            del self._connections[node]
        return frozenset(node for node, each in over if each.request is not None)

    @property
    def deadline_ms(self) -> int:
        """When the first timeout or pause is over."""
        return min((each.until_ms for each in self._connections.values()), default=FOREVER)

    @property
    def is_any_in_flight(self) -> bool:
        """Whether any request waits for its response."""
        return any(each.request is not None for each in self._connections.values())

    def is_ready(self, node_id: int) -> bool:
        """Whether a request can be sent to the node: none is in flight, and there is no pause."""
        return node_id not in self._connections

    def is_pausing(self, node_id: int) -> bool:
        """Whether the last request to the node failed just now."""
        connection = self._connections.get(node_id)
        return connection is not None and connection.request is None

    def choose(self, nodes: Sequence[Node], start: int) -> Node | None:
        """The first ready node from index `start` on; None if there is none, or any request is in flight."""
        if self.is_any_in_flight:
            return None
        rotated: Iterable[Node] = (*nodes[start:], *nodes[:start])
        return next((node for node in rotated if self.is_ready(node.node_id)), None)

    def sent(self, node_id: int, request: Request, now_ms: int) -> int:
        """Note that a request is sent; returns its id."""
        self.last_id += 1
        self._connections[node_id] = _Connection(self.last_id, request, now_ms + self._request_timeout_ms)
        return self.last_id

    def find(self, request_id: int) -> tuple[int, Request] | None:
        """The node and the request with this id; None if the response is not expected any more."""
        for node_id, each in self._connections.items():
            if each.request_id == request_id and each.request is not None:
                return node_id, each.request
        return None

    def done(self, request_id: int, now_ms: int, *, succeeded: bool, is_denied: bool = False) -> None:
        """Note the outcome of a request. After a failure the node gets no request for a while.

        The pause doubles while the node denies this one the right: usually an operator has to grant it, but a node that
        starts denies everything until it has loaded its rules.
        """
        for node_id, each in list(self._connections.items()):
            if each.request_id == request_id and each.request is not None:
                denials = self._denials[node_id] = self._denials.get(node_id, 0) + 1 if is_denied else 0
                if succeeded:
                    del self._connections[node_id]
                    continue
                pause_ms = self._retry_backoff_ms
                if denials:
                    pause_ms = max(pause_ms, min(pause_ms << min(denials - 1, 10), LONGEST_DENIED_PAUSE_MS))
                self._connections[node_id] = _Connection(0, None, now_ms + pause_ms)

    def reset(self) -> None:
        """Forget all requests, pauses and lost connections, but not how often a node denied one."""
        self._connections.clear()
        self.gone.clear()
