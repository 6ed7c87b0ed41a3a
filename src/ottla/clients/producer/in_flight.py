"""The requests that wait for an answer, and the brokers that can take another. KIP-219."""

from __future__ import annotations

from ottla.clients.producer.batch import Batch
from ottla.clients.producer.events import Send


class InFlight:
    """At most `limit` requests to each broker, and none while it has asked for peace."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent: dict[int, Send] = {}
        self._counts: dict[int, int] = {}
        self._throttled_until_ms: dict[int, int] = {}  # empty as long as no broker asks for it
        self._next_id = 0

    def send(self, node: int, batches: list[Batch]) -> Send:
        """A request that is on its way from now on."""
        send = Send(self._next_id, node, batches)
        self._next_id += 1
        self._sent[send.request_id] = send
        self._counts[node] = self._counts.get(node, 0) + 1
        return send

    def take(self, request_id: int) -> Send:
        """The request, which is not on its way any more."""
        send = self._sent.pop(request_id)
        self._counts[send.node_id] -= 1
        return send

    def throttle(self, node: int, until_ms: int) -> None:
        """The broker wants nothing until then."""
        self._throttled_until_ms[node] = max(until_ms, self._throttled_until_ms.get(node, 0))

    def free_at_ms(self, node: int, now_ms: int) -> int | None:
        """When the broker may be sent a request: `now_ms`, or later, or None after the next answer."""
        if self._counts.get(node, 0) >= self._limit:
            return None
        return max(now_ms, self._throttled_until_ms.get(node, 0)) if self._throttled_until_ms else now_ms

    def validate(self) -> None:
        """Invariants, for tests."""
        flying = [batch for send in self._sent.values() for batch in send.batches]
        assert len(flying) == len(set(flying)), "a batch is in two requests"
        for node, count in self._counts.items():
            assert 0 <= count <= self._limit, f"{count} requests in flight to node {node}"
