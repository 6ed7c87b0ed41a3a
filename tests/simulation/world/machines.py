"""Simulated machines: hosts on a network, whose processes see simulated time, threads, sockets and random numbers.

`Machines.installed()` replaces what the code under test takes from its environment: the clock of `time`, random bytes,
listening sockets, thread pools, the processes of the cleaner and the locks of directories. Everything else is the real
code. A connection delivers its bytes in order after random delays, in random pieces. A cut link delivers nothing until
it is repaired, in one direction or in both. A killed process closes its connections; a machine that loses power says
nothing.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random as random_module
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future as ThreadFuture
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

from ottla.broker import listening
from ottla.clients.producer import base as producer_base
from ottla.clients.producer import producer as producer_module
from ottla.clients.producer import sender
from ottla.cluster.control import probe
from ottla.cluster.node import schedulers
from ottla.coordination import late
from ottla.log.storage import DirectoryLock
from tests.simulation.world.cleaning import simulated_cleaner
from tests.simulation.world.disk import Crash
from tests.simulation.world.process_loop import US, WALL_START_MS, ProcessLoop, Schedule

Link = tuple[str, str]


class End(asyncio.Transport):
    """One end of a connection: the transport of one process."""

    def __init__(self, network: Network, process: ProcessLoop, peer: str) -> None:
        super().__init__()
        self.network, self.process, self.peer = network, process, peer
        # Its own: several connections that close at the same time do so in an order of addresses.
        self.random = _REAL_RANDOM(network.random.getrandbits(64))
        self.other: End
        self._protocol: Any = None
        self._received: deque[bytes | Exception | None] = deque()
        """Pieces; an exception or None is the end of the connection."""
        self._in_flight: deque[bytes | Exception | None] = deque()
        self._arrival_us = 0
        self._closing = False
        self._lost = False
        self._paused = False

    # -- asyncio's transport -----------------------------------------------------------------------------------------

    def attach(self, protocol: Any) -> None:
        """Give the connection to a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)
        self.process.soon(self._take)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.peer, 50_000) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Any) -> None:
        if self._closing or self._lost:
            return
        data = b"".join(bytes(each) for each in list_of_data)
        if data and self.random.random() < 0.02:
            at = self.random.randrange(len(data))
            self.network.send(self, data[:at])
            data = data[at:]
        if data:
            self.network.send(self, data)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.network.send(self, None)
            self.process.soon(lambda: self._lose(None))

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self.network.send(self, ConnectionResetError(104, "Connection reset by peer"))
        self.process.soon(lambda: self._lose(None))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.process.soon(self._take)

    # -- delivery ----------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """The next piece reaches this host."""
        self._received.append(self._in_flight.popleft())
        self.process.soon(self._take)

    def reset(self) -> None:
        """The connection breaks: what is in flight is lost."""
        if not self._lost and not self.process.dead:
            self._received.append(ConnectionResetError(104, "Connection reset by peer"))
            self.process.soon(self._take)

    def _take(self) -> None:
        protocol = self._protocol
        while protocol is not None and self._received and not self._paused and not self._lost:
            piece = self._received.popleft()
            if not isinstance(piece, bytes):
                self._closing = True
                self._lose(piece)
            elif not self._closing:
                self._deliver(protocol, piece)

    @staticmethod
    def _deliver(protocol: Any, piece: bytes) -> None:
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)
            return
        done = 0
        while done < len(piece):
            buffer = protocol.get_buffer(-1)
            count = min(len(buffer), len(piece) - done)
            buffer[:count] = piece[done : done + count]  # type: ignore[index]
            done += count
            protocol.buffer_updated(count)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.network.ends.pop(self, None)
            if self._protocol is not None:
                self._protocol.connection_lost(error)


class Socket:
    """A socket: bound and listening, or accepted, or about to connect."""

    def __init__(self, *_: Any) -> None:
        self.port = 0
        self.backlog: deque[End] = deque()
        self.on_connection: Callable[[], object] | None = None
        self.end: End
        self.close_listener: Callable[[], object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def setblocking(self, flag: bool) -> None:
        pass

    def listen(self, _backlog: int) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        accepted = Socket()
        accepted.end = self.backlog.popleft()
        return accepted, (accepted.end.peer, 50_000)

    def close(self) -> None:
        if self.close_listener is not None:
            self.close_listener()
            while self.backlog:
                self.backlog.popleft().abort()
        elif hasattr(self, "end"):
            self.end.abort()


class Network:
    """All hosts, listeners and connections."""

    def __init__(self, schedule: Schedule, random: Random) -> None:
        self.schedule, self.random = schedule, random
        self.blocked: set[Link] = set()
        """(source, target) of links that deliver nothing."""
        self.latency_us = (200, 3_000)
        self.slow_links: dict[Link, int] = {}
        """The longest additional delay of a link."""
        self.listeners: dict[tuple[str, int], tuple[Socket, ProcessLoop]] = {}
        self.down: set[str] = set()
        """Hosts without power: they do not answer at all."""
        self.ends: dict[End, None] = {}
        self._held: list[tuple[Link, Callable[[], None]]] = []

    def latency(self, link: Link, random: Random | None = None) -> int:
        """Draw the delay of one piece."""
        random = random or self.random
        delay_us = random.randint(*self.latency_us)
        if random.random() < 0.01:
            delay_us *= 20
        return delay_us + random.randrange(self.slow_links.get(link, 0) + 1)

    def bind(self, process: ProcessLoop, port: int) -> Socket:
        """A socket that listens on the host of a process."""
        sock = Socket()
        sock.port = port
        address = (process.host, port)
        self.listeners[address] = (sock, process)
        sock.close_listener = lambda: self.listeners.pop(address, None)
        return sock

    def _pass(self, link: Link, delay_us: int, arrive: Callable[[], None]) -> None:
        """Call `arrive` after a delay, and not while the link is cut."""

        def when_there() -> None:
            if link in self.blocked or link[1] in self.down:
                self._held.append((link, arrive))
            else:
                arrive()

        self.schedule.plan(delay_us, when_there)

    def released(self) -> None:
        """Links or hosts work again: deliver what waited."""
        held, self._held = self._held, []
        for link, arrive in held:
            self._pass(link, self.latency(link), arrive)

    def send(self, source: End, piece: bytes | Exception | None) -> None:
        """Send a piece to the other end; pieces arrive in order."""
        target = source.other
        link = (source.process.host, target.process.host)
        target._in_flight.append(piece)
        at_us = max(target._arrival_us, self.schedule.now_us + self.latency(link, source.random))
        target._arrival_us = at_us

        def arrive() -> None:
            if target.process.dead:
                # The host answers for the process that has ended.
                if piece is not None and not isinstance(piece, Exception):
                    self._pass(link[::-1], self.latency(link, source.random), source.reset)
            else:
                target.arrive()

        self._pass(link, at_us - self.schedule.now_us, arrive)

    async def connect(self, process: ProcessLoop, host: str, port: int) -> End:
        """Open a connection. Raises ConnectionRefusedError; waits for ever if the host does not answer."""
        done = process.create_future()
        link = (process.host, host)

        def refuse() -> None:
            if not done.done():
                done.set_exception(ConnectionRefusedError(111, "Connection refused"))

        def accept(end: End) -> None:
            if not done.done():
                done.set_result(end)
            else:
                end.abort()

        def arrive() -> None:
            sock, server = self.listeners.get((host, port), (None, None))
            if sock is None or server is None or server.dead:
                self._pass((host, process.host), self.latency(link), lambda: process.soon(refuse))
                return
            here, there = End(self, process, host), End(self, server, process.host)
            here.other, there.other = there, here
            self.ends[here] = self.ends[there] = None
            sock.backlog.append(there)
            server.soon(lambda: sock.on_connection and sock.on_connection())
            self._pass((host, process.host), self.latency(link), lambda: process.soon(lambda: accept(here)))

        self._pass(link, self.latency(link), arrive)
        return await done  # type: ignore[no-any-return]

    def process_ended(self, process: ProcessLoop, *, says_so: bool) -> None:
        """The process was killed; its host closes its connections, unless it lost power."""
        self.listeners = {where: each for where, each in self.listeners.items() if each[1] is not process}
        for end in [each for each in self.ends if each.process is process]:
            self.ends.pop(end)
            if says_so and not end._closing:
                end._closing = True
                self.send(end, ConnectionResetError(104, "Connection reset by peer"))

    def break_connection(self) -> None:
        """Reset a random connection: both sides lose what is in flight."""
        if self.ends:
            end = self.random.choice(list(self.ends))
            end.reset()
            end.other.reset()


class Threads:
    """Replaces `ThreadPoolExecutor`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._loop: Any = asyncio.get_running_loop()

    def submit(self, work: Callable[..., Any], *args: Any) -> ThreadFuture[Any]:
        return self._loop.in_thread(work, *args)  # type: ignore[no-any-return]

    def shutdown(self, *, wait: bool = True) -> None:
        pass


class Clock:
    """The clock of a machine; its wall clock may be set."""

    def __init__(self, process: ProcessLoop) -> None:
        self._process = process
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return int(self._process.time() * 1000)

    def wall_ms(self) -> int:
        return WALL_START_MS + self._process.schedule.now_us // 1000 + self.ahead_ms


class UnhandledErrors(logging.Handler):
    """Reports errors that the code under test logs with a traceback: it did not expect them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Crash):
            self._problems.append(f"{record.getMessage()}: {error!r}")


class Machines:
    """All hosts of one simulation."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.schedule = Schedule()
        self.network = Network(self.schedule, Random(self.random.random()))
        self.problems: list[str] = []
        self.processes: list[ProcessLoop] = []
        self._ended_tasks: list[asyncio.Task[Any]] = []
        """The tasks of killed processes, which are kept: their clean-up code must not run."""

    def start_process(self, host: str, *, rate: float = 1.0) -> ProcessLoop:
        """A new process on a host."""
        process = ProcessLoop(self, host, rate=rate)
        self.processes.append(process)
        return process

    def kill(self, process: ProcessLoop, *, power: bool = False) -> None:
        """End a process at once; with `power` its whole machine."""
        if not process.dead:
            process.dead = True
            self._ended_tasks += asyncio.all_tasks(process)
            process.close_unstarted()
            if power:
                self.network.down.add(process.host)
            self.network.process_ended(process, says_so=not power)

    def problem(self, process: ProcessLoop, context: dict[str, Any]) -> None:
        """An unhandled exception."""
        error = context.get("exception")
        if isinstance(error, AssertionError):
            raise error
        self.problems.append(f"{process.host}: {context.get('message')}: {error!r}")

    # -- the environment of the code under test ----------------------------------------------------------------------

    def _time(self) -> float:
        running: Any = asyncio.events._get_running_loop()
        return running.time() if running is not None else self.schedule.now_us / US

    def _wall_ns(self) -> int:
        return WALL_START_MS * 1_000_000 + self.schedule.now_us * 1000

    def _bind(self, listener: Any, _config: Any) -> list[Any]:
        running: Any = asyncio.get_running_loop()
        return [self.network.bind(running, listener.port)]

    def _random(self, seed: Any = None) -> Random:
        return _REAL_RANDOM(self.random.getrandbits(64) if seed is None else seed)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace time, random numbers, sockets and threads."""
        sockets = SimpleNamespace(socket=Socket, AF_INET=2, SOCK_STREAM=1)
        replaced: list[tuple[Any, str, Any]] = [
            (time, "monotonic", self._time),
            (time, "monotonic_ns", lambda: int(self._time() * 1e9)),
            (time, "time_ns", self._wall_ns),
            (producer_base, "time_ns", self._wall_ns),
            (producer_module, "time_ns", self._wall_ns),
            (sender, "Random", self._random),
            (os, "urandom", self.random.randbytes),
            (random_module, "Random", self._random),
            (listening, "bind", self._bind),
            (probe, "socket", sockets),
            (schedulers, "ThreadPoolExecutor", Threads),
            (late, "Cleaner", simulated_cleaner),
            (DirectoryLock, "acquire", lambda _: None),
        ]
        patches = [mock.patch.object(*each) for each in replaced]
        for each in patches:
            each.start()
        # The collector closes what the code dropped, at a moment that depends on earlier seeds.
        gc.collect()
        gc.disable()
        errors, logger = UnhandledErrors(self.problems), logging.getLogger("ottla")
        logger.addHandler(errors)
        try:
            yield
        finally:
            logger.removeHandler(errors)
            gc.enable()
            for each in reversed(patches):
                each.stop()
            self._clear()

    def _clear(self) -> None:
        """End all processes, and forget their tasks."""
        for process in self.processes:
            self.kill(process)
        tasks, self._ended_tasks = self._ended_tasks, []
        with mock.patch.object(sys, "unraisablehook"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                asyncio.events._set_running_loop(task.get_loop())
                for _ in range(_MOST_CLOSES):
                    try:
                        task.get_coro().close()
                    except Exception:  # noqa: BLE001 - clean-up code of a killed process cannot work
                        continue
                    break
                asyncio.events._set_running_loop(None)


# Clean-up code may wait again and again.
_MOST_CLOSES = 20
_REAL_RANDOM = random_module.Random
