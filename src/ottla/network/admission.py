"""Decides whether and when an accepted connection is opened: within the descriptors of the process, and its rate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.common.rate_limit import RateLimitedLog
from ottla.network.connection import Connection
from ottla.network.connections import Connections
from ottla.network.descriptors import open_file_limit
from ottla.network.handshakes import Handshakes

logger = logging.getLogger(__name__)

MOST_CREATION_DELAY_S = 10.0


class Admission:
    """The limits on new connections of all listeners."""

    def __init__(self, connections: Connections[Connection]) -> None:
        self._connections = connections
        # By listener; "" stands for all of them.
        self._next_creation_s: dict[str, float] = {}
        self.handshakes = Handshakes()
        self._refusals = RateLimitedLog(logger)
        self._shortages = RateLimitedLog(logger, lines=1, period_s=10.0)
        self.reserved_descriptors: Callable[[int], int] = lambda _limit: 0
        """Returns how many of a limit of open files connections must leave free."""
        self.release_descriptor: Callable[[], bool] = lambda: False
        """Closes a cached file; returns whether there was one."""
        self.refused_ms: Callable[[str], int] = lambda _address: 0
        """Counts a connection of an address; returns how long the address must not connect, 0 if it may (KIP-612)."""

    def has_descriptor(self) -> bool:
        """Whether one more connection may use a descriptor; if not, log what to do about it."""
        limit, taken = open_file_limit(), self._connections.count
        allowed = limit - self.reserved_descriptors(limit)
        if taken < allowed:
            return True
        self._shortages.warning(
            "Refusing connections: %d are open, and %d of the process's %d open files are reserved for its logs. Raise"
            " the limit of open files (ulimit -n, LimitNOFILE in systemd)",
            taken,
            limit - allowed,
            limit,
        )
        return False

    def note_shortage(self, error: OSError) -> None:
        """Log that a connection could not be accepted for lack of descriptors or memory."""
        self._shortages.warning("Connections cannot be accepted for a while: %s", error)

    def note_refused(self, connection: Connection, problem: str) -> None:
        """Log that a TLS handshake failed, in Kafka's words; at most a few lines per second."""
        address = connection.remote_host, connection.remote_port, connection.listener
        self._refusals.info("Failed authentication with %s:%d on %s (SSL handshake failed): %s", *address, problem)

    def delay_s(self, listener: str) -> float:
        """How long a new connection must wait before it is opened, so that the rates stay below their limits.

        A connection that will be rejected does not wait.
        """
        limits = self._connections.limits
        is_protected = listener == limits.protected_listener
        if self._connections.count > limits.max_connections and not is_protected:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        delay_s = 0.0
        for name, rate in (
            ("", limits.max_connection_creation_rate),
            (listener, limits.of_listener(listener).max_connection_creation_rate),
        ):
            if is_protected and not name:
                continue
            # The connections of one second may come in a burst.
            earliest_s = max(self._next_creation_s.get(name, 0.0), now_s - 1.0)
            self._next_creation_s[name] = earliest_s + 1.0 / max(rate, 1)
            delay_s = max(delay_s, self._next_creation_s[name] - now_s)
        return min(delay_s, MOST_CREATION_DELAY_S)
