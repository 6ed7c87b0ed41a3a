"""Counts of a client's connections, for its metrics."""

from __future__ import annotations

from dataclasses import dataclass
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
