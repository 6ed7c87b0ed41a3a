"""The requests that wait for a response, and the brokers that can take another one. KIP-219."""

from __future__ import annotations

from ottla.clients.producer.batch import Batch
from ottla.clients.producer.effects import Send


class InFlight:
    """At most `limit` requests to each broker, and none while a broker throttles the producer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent: dict[int, Send] = {}
        self._counts: dict[int, int] = {}
        self._throttled_until_ms: dict[int, int] = {}  # empty until a broker throttles
        self._next_id = 0

    def send(self, node: int, batches: list[Batch]) -> Send:
        """A new request, in flight from now on."""
        send = Send(self._next_id, node, batches)
        self._next_id += 1
        self._sent[send.request_id] = send
        self._counts[node] = self._counts.get(node, 0) + 1
        return send

    def take(self, request_id: int) -> Send:
        """Remove and return a request that is in flight."""
        send = self._sent.pop(request_id)
        self._counts[send.node_id] -= 1
        return send

    def is_empty(self) -> bool:
        """Whether no request waits for a response."""
        return not self._sent

    def throttle(self, node: int, until_ms: int) -> None:
        """Send nothing to the broker until then."""
        self._throttled_until_ms[node] = max(until_ms, self._throttled_until_ms.get(node, 0))

    def free_at_ms(self, node: int, now_ms: int) -> int | None:
        """When the broker can take a request: `now_ms` or later; None until the next response."""
        if self._counts.get(node, 0) >= self._limit:
            return None
        return max(now_ms, self._throttled_until_ms.get(node, 0)) if self._throttled_until_ms else now_ms

    def validate(self) -> None:
        """Check the invariants, for tests."""
        flying = [batch for send in self._sent.values() for batch in send.batches]
        assert len(flying) == len(set(flying)), "a batch is in two requests"
        for node, count in self._counts.items():
            assert 0 <= count <= self._limit, f"{count} requests in flight to node {node}"
