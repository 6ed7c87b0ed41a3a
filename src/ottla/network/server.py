"""All listeners and connections of one broker, and what they may take of it together."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable

from ottla.common.rate_limit import RateLimitedLog
from ottla.network.acceptor import Acceptor
from ottla.network.buffers import BufferPool
from ottla.network.connection import SCRATCH_BYTES, SMALL_READ_BYTES, Connection, Dispatch
from ottla.network.descriptors import open_file_limit
from ottla.network.limits import Limits

logger = logging.getLogger(__name__)

MOST_CREATION_DELAY_S = 10.0
# Then it is the turn of others: one read can hold ten thousand small requests.
FRAMES_PER_TURN = 200
# Of all who pipeline, in one turn of the loop: some 60 ms of work. A heartbeat waits that long, and not for 200
# requests of each of hundreds of connections.
FRAMES_PER_ROUND = 2000
LEAST_FRAMES_PER_TURN = 8
# If there are more of them, they read less at a time: what is not handled soon is better left in the client's socket.
CROWD = 8


class Server:
    """All listeners and connections of one broker."""

    TICKS_PER_IDLE_TIME = 20

    def __init__(self, dispatch: Dispatch, limits: Limits | None = None) -> None:
        self.dispatch = dispatch
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.opening: set[Connection] = set()
        """Accepted, and not admitted yet."""
        # One for all connections: a read is handled before the next one.
        self.scratch = self._whole_scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.round = 1
        """A turn of the loop in which some connection had several frames handled."""
        self.frames_per_turn = FRAMES_PER_TURN
        self._turns = self._frames = 0
        self.buffers = BufferPool()
        self.buffered_bytes = 0
        self.tick = 0
        self.draining = False
        """Stopping: what is in progress is answered, nothing else is begun."""
        self._next_creation_s = 0.0
        self._exempt: Connection | None = None
        self._waiting_for_memory: deque[Connection] = deque()
        self._per_ip: Counter[str] = Counter()
        self._acceptors: list[Acceptor] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._log = RateLimitedLog(logger)
        self._shortages = RateLimitedLog(logger, lines=1, period_s=10.0)
        self.reserved_descriptors: Callable[[int], int] = lambda _limit: 0
        """How many of a limit of open files connections must leave to others."""
        self.release_descriptor: Callable[[], bool] = lambda: False
        """Closes a file that is only cached; whether there was one."""

    def listen(self, listener: str, sock: socket.socket, dispatch: Dispatch | None = None) -> None:
        """Accept connections on a bound socket as those of `listener`; `dispatch` is theirs, if it is another one."""
        acceptor = Acceptor(self, listener, sock, dispatch)
        self._acceptors.append(acceptor)
        acceptor.start(self.limits.backlog)
        if self._sweeper is None:
            self._sweep()

    def stop_listening(self, listener: str) -> None:
        """Close the sockets of `listener`; its connections stay."""
        for acceptor in self._acceptors:
            if acceptor.listener == listener:
                acceptor.close()
        self._acceptors = [each for each in self._acceptors if each.listener != listener]

    async def close(self, within_s: float) -> None:
        """Stop accepting, give requests in progress `within_s` to be answered, close all connections."""
        self.draining = True
        for acceptor in self._acceptors:
            acceptor.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while self.connections and loop.time() < deadline:
            for connection in tuple(self.connections):  # also those that were accepted at the last moment
                if not connection.is_busy:
                    connection.close()
            await asyncio.sleep(0.005)
        for connection in tuple(self.connections):
            connection.abort()
        while self.connections and loop.time() < deadline + 0.5:
            await asyncio.sleep(0.005)

    # -- limits ------------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> str | None:
        """Count the connection in; why it may not stay, if it may not."""
        host, limits = connection.remote_host, self.limits
        self.opening.discard(connection)
        self.connections.add(connection)
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
        """Whether one more connection may take a descriptor; if not, a log line says what to do."""
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
        """A connection could not be accepted for want of descriptors or memory."""
        self._shortages.warning("Connections cannot be accepted for a while: %s", error)

    def creation_delay_s(self) -> float:
        """How long a new connection must wait before it is opened, so that no more than the allowed rate come in.

        One that will be refused waits for nothing.
        """
        if self.connection_count > self.limits.max_connections:
            return 0.0
        rate = self.limits.max_connection_creation_rate
        now_s = asyncio.get_running_loop().time()
        # A second's worth may come at once.
        self._next_creation_s = max(self._next_creation_s, now_s - 1.0) + 1.0 / max(rate, 1)
        return min(self._next_creation_s - now_s, MOST_CREATION_DELAY_S)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._per_ip[connection.remote_host] -= 1
            if not self._per_ip[connection.remote_host]:
                del self._per_ip[connection.remote_host]
        if self._exempt is connection:
            self._exempt = None
            self._wake_waiting()

    def has_room(self, more_bytes: int) -> bool:
        """Whether buffers may grow that much without waiting."""
        return self.buffered_bytes + more_bytes <= self.limits.max_buffered_bytes

    def may_buffer(self, connection: Connection, more_bytes: int) -> bool:
        """Whether the connection may hold that much more of a frame; if not, it is told later.

        Past the limit one connection at a time may go on, so that those which wait for each other get through.
        """
        if self.has_room(more_bytes) or self._exempt is connection:
            return True
        if self._exempt is None:
            self._exempt = connection
            return True
        self._waiting_for_memory.append(connection)
        return False

    def release(self, connection: Connection, size: int) -> None:
        """The connection has let go of its buffer."""
        self.buffered_bytes -= size
        if self._exempt is connection:
            self._exempt = None
        if self._waiting_for_memory:
            self._wake_waiting()

    def took_turn(self, frames: int, *, again: bool) -> int:
        """A connection had several frames handled, perhaps again in this round; the round that it is in."""
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._begin_round)
        self._turns += not again
        self._frames += frames
        if self._frames > FRAMES_PER_ROUND:  # there are more of them than in the last one
            self.frames_per_turn = LEAST_FRAMES_PER_TURN
        return self.round

    def _begin_round(self) -> None:
        turns, self._turns, self._frames = self._turns, 0, 0
        self.round += 1
        self.frames_per_turn = max(min(FRAMES_PER_ROUND // turns, FRAMES_PER_TURN), LEAST_FRAMES_PER_TURN)
        self.scratch = self._whole_scratch[:SMALL_READ_BYTES] if turns > CROWD else self._whole_scratch

    def _wake_waiting(self) -> None:
        waiting = self._waiting_for_memory
        while waiting:
            connection = waiting.popleft()
            connection.memory_available()
            if waiting and waiting[-1] is connection:
                # There is no room for it yet: nor for those behind it, of which there may be thousands.
                waiting.rotate(1)
                return

    def _sweep(self) -> None:
        """Close what is idle or does not read: one timer for all, a connection only notes the tick of its last read."""
        shortest_ms = min(
            (ms for ms in (self.limits.max_idle_ms, self.limits.slow_reader_ms) if ms > 0), default=60_000
        )
        interval_ms = min(max(shortest_ms / self.TICKS_PER_IDLE_TIME, 50), 5_000)
        self.tick += 1
        self.buffers.trim()
        idle_ticks = round(self.limits.max_idle_ms / interval_ms)
        slow_ticks = round(self.limits.slow_reader_ms / interval_ms)
        for connection in tuple(self.connections):
            problem = connection.expired(self.tick, idle_ticks, slow_ticks)
            if problem == "idle":
                logger.debug("Closing the idle connection from %s:%d", connection.remote_host, connection.remote_port)
                connection.close()
            elif problem:
                self.complain(connection, problem)
                connection.abort()
        self._sweeper = asyncio.get_running_loop().call_later(interval_ms / 1000, self._sweep)

    def reject(self, connection: Connection, problem: str) -> None:
        """One log line about a connection beyond a limit, as Kafka has it; a few of them a second at most."""
        self._log.info("Rejected connection from %s, %s.", connection.remote_host, problem)

    def complain(self, connection: Connection, problem: str) -> None:
        """One log line about a client; a few of them a second at most."""
        self._log.warning(
            "Closing socket for %s:%d because of error: %s", connection.remote_host, connection.remote_port, problem
        )
