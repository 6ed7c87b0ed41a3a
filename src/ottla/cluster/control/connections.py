"""The connections on which brokers send their heartbeats to this controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Connection(Protocol):
    """The part of a client's connection that is used here."""

    closed: bool
    remote_host: str
    state: dict[str, object]

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection is closed."""
        ...


_STATE = "broker id"


class BrokerConnections:
    """The latest connection of each broker that was accepted by the controller; bounded by the open connections.

    `on_lost(broker_id, remote_host)` is called when the last connection of a broker is closed.
    """

    def __init__(self) -> None:
        self.on_lost: Callable[[int, str], None] | None = None
        self._open: dict[int, Connection] = {}

    def note(self, broker_id: int, connection: Connection) -> None:
        """Note that the broker sent an accepted request on this connection."""
        known = connection.state.get(_STATE)
        if connection.closed or known not in (None, broker_id):
            return
        self._open[broker_id] = connection
        if known is None:
            connection.state[_STATE] = broker_id
            connection.on_close(lambda: self._closed(broker_id, connection))

    def is_connected(self, broker_id: int) -> bool:
        """Whether the broker has a connection to this controller."""
        return broker_id in self._open

    def _closed(self, broker_id: int, connection: Connection) -> None:
        if self._open.get(broker_id) is connection:
            del self._open[broker_id]
            if self.on_lost is not None:
                self.on_lost(broker_id, connection.remote_host)
