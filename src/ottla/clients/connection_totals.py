"""Counts of a client's connections, for its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.network.client import ClientConnection


@dataclass(slots=True)
class ConnectionTotals:
    """The number of connections ever opened, and the traffic of the closed ones."""

    connections: int = 0
    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def add(self, connection: ClientConnection) -> None:
        self.requests += connection.requests
        self.sent_bytes += connection.sent_bytes
        self.received_bytes += connection.received_bytes


def metrics_of(closed: ConnectionTotals, open_now: Iterable[ClientConnection]) -> dict[str, float]:
    """Return the counts of all connections by the metric names of Kafka's clients."""
    connections = list(open_now)
    totals = replace(closed)
    for connection in connections:
        totals.add(connection)
    return {
        "connection-count": len(connections),
        "connection-creation-total": totals.connections,
        "request-total": totals.requests,
        "requests-in-flight": sum(connection.in_flight for connection in connections),
        "outgoing-byte-total": totals.sent_bytes,
        "incoming-byte-total": totals.received_bytes,
    }
