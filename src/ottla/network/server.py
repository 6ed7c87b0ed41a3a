"""All listeners and connections of one broker, and their common limits."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable

from ottla.common.rate_limit import RateLimitedLog
from ottla.network.acceptor import Acceptor
from ottla.network.connection import Connection, Dispatch
from ottla.network.descriptors import open_file_limit
from ottla.network.frame_quota import FrameQuota
from ottla.network.frame_reader import PIPELINE_BUFFER_BYTES
from ottla.network.limits import Limits
from ottla.network.receive_memory import SCRATCH_BYTES, ReceiveMemory

logger = logging.getLogger(__name__)

MOST_CREATION_DELAY_S = 10.0


class Server:
    """All listeners and connections of one broker."""

    TICKS_PER_IDLE_TIME = 20

    def __init__(self, dispatch: Dispatch, limits: Limits | None = None) -> None:
        self.dispatch = dispatch
        self._limits = limits or Limits()
        self.memory = ReceiveMemory(self._limits)
        self.quota = FrameQuota()
        self.connections: dict[Connection, None] = {}
        """In the order in which they were opened, which a simulation repeats."""
        self.opening: set[Connection] = set()
        """Connections that are accepted and not admitted yet."""
        self.tick = 0
        """Counts the sweeps; the unit of the time for which a connection is idle."""
        self.draining = False
        """True while the server stops: requests in progress are answered, other requests are not handled."""
        self._next_creation_s = 0.0
        self._per_ip: Counter[str] = Counter()
        self._acceptors: list[Acceptor] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._log = RateLimitedLog(logger)
        self._shortages = RateLimitedLog(logger, lines=1, period_s=10.0)
        self.reserved_descriptors: Callable[[int], int] = lambda _limit: 0
        """Returns how many of a limit of open files connections must leave free."""
        self.release_descriptor: Callable[[], bool] = lambda: False
        """Closes a cached file; returns whether there was one."""

    @property
    def limits(self) -> Limits:
        """The current limits; they may be replaced while the server runs."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self.memory.set_limits(limits)

    def listen(self, listener: str, sock: socket.socket, dispatch: Dispatch | None = None) -> None:
        """Accept connections of `listener` on a bound socket; `dispatch` handles their requests if it is given."""
        acceptor = Acceptor(self, listener, sock, dispatch)
        self._acceptors.append(acceptor)
        acceptor.start(self.limits.backlog)
        if self._sweeper is None:
            self._sweep()

    def stop_listening(self, listener: str) -> None:
        """Close the sockets of `listener`; its connections stay open."""
        for acceptor in self._acceptors:
            if acceptor.listener == listener:
                acceptor.close()
        self._acceptors = [each for each in self._acceptors if each.listener != listener]

    async def close(self, within_s: float) -> None:
        """Stop accepting, wait up to `within_s` for requests in progress, close all connections."""
        self.draining = True
        for acceptor in self._acceptors:
            acceptor.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while self.connections and loop.time() < deadline:
            for connection in tuple(self.connections):  # a copy: others are accepted meanwhile
                if not connection.is_busy:
                    connection.close()
            await asyncio.sleep(0.005)
        for connection in tuple(self.connections):
            connection.abort()
        while self.connections and loop.time() < deadline + 0.5:
            await asyncio.sleep(0.005)

    # -- limits ------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Count the connection; the reason why it must be closed, if a limit is exceeded."""
        host, limits = connection.remote_host, self.limits
        self.opening.discard(connection)
        self.connections[connection] = None
        self._per_ip[host] += 1
        if len(self.connections) > limits.max_connections:
            return f"broker already has the configured maximum of {limits.max_connections} connections"
        allowed = limits.max_connections_per_ip_overrides.get(host, limits.max_connections_per_ip)
        if self._per_ip[host] > allowed:
            return f"address already has the configured maximum of {allowed} connections"
        return None

    @property
    def connection_count(self) -> int:
        """Connections that are open or about to be."""
        return len(self.connections) + len(self.opening)

    def has_descriptor(self) -> bool:
        """Whether one more connection may use a descriptor; if not, log what to do about it."""
        limit, taken = open_file_limit(), self.connection_count
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

    def creation_delay_s(self) -> float:
        """How long a new connection must wait before it is opened, so that the rate stays below its limit.

        A connection that will be rejected does not wait.
        """
        if self.connection_count > self.limits.max_connections:
            return 0.0
        rate = self.limits.max_connection_creation_rate
        now_s = asyncio.get_running_loop().time()
        # The connections of one second may come in a burst.
        self._next_creation_s = max(self._next_creation_s, now_s - 1.0) + 1.0 / max(rate, 1)
        return min(self._next_creation_s - now_s, MOST_CREATION_DELAY_S)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that is lost."""
        if connection in self.connections:
            del self.connections[connection]
            self._per_ip[connection.remote_host] -= 1
            if not self._per_ip[connection.remote_host]:
                del self._per_ip[connection.remote_host]
        self.memory.forget(connection)

    def use_quota(self, frames: int, *, is_first: bool) -> int:
        """Count frames that a connection handled in the current round; returns the round."""
        if self.quota.is_untouched:
            asyncio.get_running_loop().call_soon(self._next_round)
        self.quota.use(frames, is_first=is_first)
        return self.quota.round

    def _next_round(self) -> None:
        self.quota.next_round()
        self.memory.limit_scratch(PIPELINE_BUFFER_BYTES if self.quota.is_crowded else SCRATCH_BYTES)

    def _sweep(self) -> None:
        """Close connections that are idle or do not read their responses.

        One timer serves all connections: each only notes the tick of its last read.
        """
        shortest_ms = min(
            (ms for ms in (self.limits.max_idle_ms, self.limits.slow_reader_ms) if ms > 0), default=60_000
        )
        interval_ms = min(max(shortest_ms / self.TICKS_PER_IDLE_TIME, 50), 5_000)
        self.tick += 1
        self.memory.trim()
        idle_ticks = round(self.limits.max_idle_ms / interval_ms)
        slow_ticks = round(self.limits.slow_reader_ms / interval_ms)
        for connection in tuple(self.connections):
            problem = connection.expired(self.tick, idle_ticks, slow_ticks)
            if problem == "idle":
                logger.debug("Closing idle connection from %s:%d", connection.remote_host, connection.remote_port)
                connection.close()
            elif problem:
                self.complain(connection, problem)
                connection.abort()
        self._sweeper = asyncio.get_running_loop().call_later(interval_ms / 1000, self._sweep)

    def reject(self, connection: Connection, problem: str) -> None:
        """Log that a connection exceeds a limit, in Kafka's words; at most a few lines per second."""
        self._log.info("Rejected connection from %s, %s.", connection.remote_host, problem)

    def complain(self, connection: Connection, problem: str) -> None:
        """Log why a client's connection is closed; at most a few lines per second."""
        self._log.warning(
            "Closing socket for %s:%d because of error: %s", connection.remote_host, connection.remote_port, problem
        )
