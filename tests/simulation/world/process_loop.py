"""Event loops in simulated time: each simulated process has its own, and one thread runs all of them.

`Schedule` holds the events of all processes. `ProcessLoop` is the asyncio loop that one process sees: its tasks,
timers, threads and connections are events of the schedule. A process can be paused, has a clock with a speed of its
own, and ends at once when it is killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from tests.simulation.world.disk import Crash

if TYPE_CHECKING:
    from tests.simulation.world.machines import Machines, Socket

US = 1_000_000
WALL_START_MS = 1_700_000_000_000


class Schedule:
    """Simulated time in microseconds, and what happens when. Events of one time happen in the order of their plans."""

    def __init__(self) -> None:
        self.now_us = 0
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._count = self._numbers = 0

    def plan(self, delay_us: int, event: Callable[[], object]) -> None:
        """Call `event` in `delay_us`."""
        self._count += 1
        heapq.heappush(self._events, (self.now_us + max(0, delay_us), self._count, event))

    def next_number(self) -> int:
        """A number that is used once."""
        self._numbers += 1
        return self._numbers

    def run_until(self, end_us: int) -> int:
        """Let everything happen until a time; returns the number of events."""
        events, count = self._events, 0
        while events and events[0][0] <= end_us:
            self.now_us, _, event = heapq.heappop(events)
            event()
            count += 1
        self.now_us = end_us
        return count


class Handle:
    """A planned callback of one process."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None, when: float
    ) -> None:
        self._callback, self._args, self._when = callback, args, when
        self._context = context or contextvars.copy_context()
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        self._context.run(self._callback, *self._args)


class _Future(asyncio.Future[Any]):
    """Has a hash that does not depend on its address: it decides the order of sets."""

    def __init__(self, *, loop: ProcessLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.schedule.next_number()

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """As `_Future`."""

    def __init__(self, coro: Any, *, loop: ProcessLoop, name: str | None, context: Any) -> None:
        self._number = loop.schedule.next_number()
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of one run of a process on a host."""

    def __init__(self, machines: Machines, host: str, *, rate: float = 1.0) -> None:
        """`rate` is the speed of its clock."""
        self.machines, self.host = machines, host
        self.schedule = machines.schedule
        self.dead = False
        self.paused_until_us = 0
        self.slowness_us = 0
        """How long work of its threads takes at most, because the disk is slow."""
        self.after_event: Callable[[], None] | None = None
        self._unstarted: list[Coroutine[Any, Any, Any]] = []
        self._rate = rate
        self._offset_us = machines.random.randrange(100 * US)
        self._start_us = self.schedule.now_us

    def __repr__(self) -> str:
        return f"<process on {self.host}>"

    # -- time and callbacks ------------------------------------------------------------------------------------------

    def time(self) -> float:
        return (self._offset_us + (self.schedule.now_us - self._start_us) * self._rate) / US

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(callback, args, context, 0.0)
        self._plan(0, handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        handle = Handle(callback, args, context, when)
        # One more: a timer must not fire before its time.
        self._plan(int((when - self.time()) * US / self._rate) + 1, handle)
        return handle

    def _plan(self, delay_us: int, handle: Handle) -> None:
        self.schedule.plan(delay_us, lambda: self._run(handle))

    def _run(self, handle: Handle) -> None:
        if self.dead or handle._cancelled:
            return
        left_us = self.paused_until_us - self.schedule.now_us
        if left_us > 0:
            self._plan(left_us, handle)
            return
        asyncio.events._set_running_loop(self)
        try:
            handle.run()
        except Crash:
            pass  # the disk knows it
        except Exception as error:  # noqa: BLE001 - as in asyncio
            self.call_exception_handler({"message": "unhandled exception in a callback", "exception": error})
        finally:
            asyncio.events._set_running_loop(None)
        if self.after_event is not None and not self.dead:
            self.after_event()

    def soon(self, work: Callable[[], object], delay_us: int = 0) -> None:
        """Let the process do `work`, as an event of its own."""
        self._plan(delay_us, Handle(work, (), None, 0.0))

    def pause(self, for_us: int) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.paused_until_us = max(self.paused_until_us, self.schedule.now_us + for_us)

    # -- what asyncio needs ------------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> Any:
        if self.dead:  # clean-up code at the end of the simulation
            coro.close()
            raise RuntimeError("the process has ended")
        return _Task(coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.machines.problem(self, context)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        """Run a coroutine as a task of this process; an exception of it is a failure of the run."""
        self._unstarted.append(coroutine)
        self.soon(lambda: self._main(coroutine, name))

    def close_unstarted(self) -> None:
        """Close the coroutines that did not begin before the process was killed; Python would warn of them."""
        while self._unstarted:
            self._unstarted.pop().close()

    def _main(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._unstarted.remove(coroutine)
        task = self.create_task(coroutine, name=name)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Crash):
            self.call_exception_handler({"message": f"task {task.get_name()} failed", "exception": error})

    # -- threads -----------------------------------------------------------------------------------------------------

    def in_thread(self, work: Callable[..., Any], *args: Any) -> ThreadFuture[Any]:
        """Do `work` soon, at once in one event: a thread whose result arrives later."""
        random = self.machines.random
        future: ThreadFuture[Any] = ThreadFuture()
        takes_us = random.choice((50, 300, 2_000)) + random.randrange(self.slowness_us + 1)

        def run() -> None:
            try:
                result = work(*args)
            except Crash:
                raise
            except BaseException as error:  # noqa: BLE001 - the future has it
                error.__traceback__ = None
                self.soon(lambda error=error: future.set_exception(error), takes_us // 2)  # type: ignore[misc]
            else:
                self.soon(lambda: future.set_result(result), takes_us // 2)

        self.soon(run, takes_us // 2)
        return future

    # -- connections -------------------------------------------------------------------------------------------------

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        end = await self.machines.network.connect(self, host, port)
        protocol = protocol_factory()
        end.attach(protocol)
        return end, protocol

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        protocol = protocol_factory()
        sock.end.attach(protocol)
        return sock.end, protocol

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        fd.on_connection = lambda: callback(*args)
        if fd.backlog:
            self.soon(fd.on_connection)

    def remove_reader(self, fd: Any) -> Any:
        fd.on_connection = None

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.end = await self.machines.network.connect(self, *address)

    async def sock_recv(self, sock: Socket, nbytes: int) -> bytes:  # type: ignore[override]
        """Wait for the end of the connection: what is received is of no interest to the code under test."""
        ended = self.create_future()
        sock.end.attach(_Waiter(ended))
        await ended
        return b""


class _Waiter(asyncio.Protocol):
    """Waits for the end of a connection."""

    def __init__(self, ended: asyncio.Future[None]) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            if exc is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(exc)
