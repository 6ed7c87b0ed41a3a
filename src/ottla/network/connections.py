"""The open connections of one broker, and what they share: receive memory, the frames of a round, limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from ottla.common.rate_limit import RateLimitedLog
from ottla.network.frame_quota import FrameQuota, RoundShare
from ottla.network.frame_reader import PIPELINE_BUFFER_BYTES
from ottla.network.limits import Limits
from ottla.network.receive_memory import SCRATCH_BYTES, MemoryWaiter, ReceiveMemory

logger = logging.getLogger(__name__)

DISCONNECTED = "the client disconnected"


class Client(MemoryWaiter, Protocol):
    """A connection as `Connections` uses it."""

    listener: str
    remote_host: str
    remote_port: int

    def expired(self, tick: int, idle_ticks: int, slow_ticks: int) -> str | None:
        """Return why the connection should be closed, if it should."""

    def close(self) -> None:
        """Send all responses, then close."""

    def abort(self) -> None:
        """Close without sending the responses that are left."""


C = TypeVar("C", bound=Client)


class Connections(Generic[C]):
    """All connections, in the order in which they were opened, which a simulation repeats."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.memory = ReceiveMemory(limits)
        self.quota = FrameQuota()
        self.opening: set[C] = set()
        """Connections that are accepted and not admitted yet."""
        self.tick = 0
        """Counts the sweeps; the unit of the time for which a connection is idle."""
        self.draining = False
        """True while the server stops: requests in progress are answered, other requests are not handled."""
        self._open: dict[C, None] = {}
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._log = RateLimitedLog(logger)

    @property
    def limits(self) -> Limits:
        """The current limits; they may be replaced while the server runs."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self.memory.set_limits(limits)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        """Iterate over a copy: others may be accepted or lost meanwhile."""
        return iter(tuple(self._open))

    @property
    def count(self) -> int:
        """Connections that are open or about to be."""
        return len(self._open) + len(self.opening)

    def admit(self, connection: C) -> str | None:
        """Count the connection; the reason why it must be closed, if a limit is exceeded."""
        host, limits = connection.remote_host, self._limits
        self.opening.discard(connection)
        self._open[connection] = None
        self._per_ip[host] += 1
        self._per_listener[connection.listener] += 1
        if len(self._open) > limits.max_connections and connection.listener != limits.protected_listener:
            return f"broker already has the configured maximum of {limits.max_connections} connections"
        most = limits.of_listener(connection.listener).max_connections
        if self._per_listener[connection.listener] > most:
            return f"listener {connection.listener} already has the configured maximum of {most} connections"
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        if self._per_ip[host] > allowed:
            return f"address already has the configured maximum of {allowed} connections"
        return None

    def forget(self, connection: C) -> None:
        """Remove a connection that is lost."""
        if connection in self._open:
            del self._open[connection]
            self._per_listener[connection.listener] -= 1
            self._per_ip[connection.remote_host] -= 1
            if not self._per_ip[connection.remote_host]:
                del self._per_ip[connection.remote_host]
        self.memory.forget(connection)

    def use_quota(self, share: RoundShare, handled: int, left: int) -> None:
        """Count frames that a connection handled in the current round; it has `left` of its share."""
        if self.quota.is_untouched:
            asyncio.get_running_loop().call_soon(self._next_round)
        share.use(self.quota, handled, left)

    def _next_round(self) -> None:
        self.quota.next_round()
        self.memory.limit_scratch(PIPELINE_BUFFER_BYTES if self.quota.is_crowded else SCRATCH_BYTES)

    def sweep(self, interval_ms: float) -> None:
        """Close connections that are idle or do not read their responses. Each only notes the tick of its last read."""
        self.tick += 1
        self.memory.trim()
        idle_ticks = round(self._limits.max_idle_ms / interval_ms)
        slow_ticks = round(self._limits.slow_reader_ms / interval_ms)
        for connection in self:
            problem = connection.expired(self.tick, idle_ticks, slow_ticks)
            if problem == "idle":
                logger.debug("Closing idle connection from %s:%d", connection.remote_host, connection.remote_port)
                connection.close()
            elif problem == DISCONNECTED:
                connection.abort()
            elif problem:
                self.complain(connection, problem)
                connection.abort()

    def reject(self, connection: C, problem: str) -> None:
        """Log that a connection exceeds a limit, in Kafka's words; at most a few lines per second."""
        self._log.info("Rejected connection from %s, %s.", connection.remote_host, problem)

    def complain(self, connection: C, problem: str) -> None:
        """Log why a client's connection is closed; at most a few lines per second."""
        self._log.warning(
            "Closing socket for %s:%d because of error: %s", connection.remote_host, connection.remote_port, problem
        )
