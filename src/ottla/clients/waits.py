"""How the methods of a client wait: on the caller's event loop (`AsyncWaits`) or in the caller's thread.

Both forms of a client have the same methods, written once as coroutine functions that wait by one of these classes.
`BlockingWaits` never suspends a coroutine, so `finish` runs it to its end in the caller's thread, without an event
loop. `blocking` derives the method of the blocking client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from ottla.clients.driver import Driver

P = ParamSpec("P")
R = TypeVar("R")
CHECK_INTERVAL_S: Final = 0.005
"""How often an asyncio client checks whether another task has released a lock."""


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Any, P], R]:
    """Return the method of the blocking client: it runs this coroutine method of the asyncio client to its end.

    It has the signature and docstring of `method`, for type checkers (`P`, `R`) and `inspect` (`functools.wraps`).
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return finish(method(self, *args, **kwargs))

    call.__qualname__ = method.__qualname__.removeprefix("Async")
    return call


def finish(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that waits in the caller's thread, and never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError(f"{coroutine} awaits an event loop")


class SignalSafeEvent:
    """An event that any thread or signal handler sets, and that one thread waits for.

    The methods of threading.Event take a lock. A signal handler runs between two instructions of the main thread, so a
    handler that calls `set` would deadlock if the main thread holds that lock. Here a method never holds a lock: the
    event is set while the one lock is free, and `wait` acquires it.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = allocate_lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the current wait, or the next one."""
        with contextlib.suppress(RuntimeError):  # the event is set already
            self._unset.release()

    def clear(self) -> None:
        """Make the next wait block."""
        self._unset.acquire(False)

    async def until(self, timeout_s: float | None) -> bool:
        """Block until the event is set, at most `timeout_s` seconds, and clear it."""
        return self._unset.acquire(timeout=-1 if timeout_s is None else timeout_s)


class AsyncEvent(asyncio.Event):
    """An event that callbacks of an event loop set."""

    async def until(self, timeout_s: float | None) -> bool:
        """Wait until the event is set, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.wait()
        except TimeoutError:
            return False


class AsyncWaits:
    """Waits on the running event loop, which also runs the client's network."""

    event = AsyncEvent
    caller: Callable[[], object] = staticmethod(asyncio.current_task)
    """Identifies the caller: the task or the thread."""

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function of the network on its loop; does not wait for other threads."""
        function(*args)

    async def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:  # noqa: ARG002
        """Run a coroutine of the network; a blocking client waits at most `timeout_s` for its thread."""
        return await coroutine

    async def acquire(self, lock: LockType, timeout_s: float) -> bool:
        """Acquire a lock of the client within `timeout_s` seconds. Return whether that succeeded."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not (acquired := lock.acquire(blocking=False)) and loop.time() < deadline_s:
            await asyncio.sleep(CHECK_INTERVAL_S)
        return acquired

    async def listener(self, returned: object) -> None:
        """Await what a function of the program returned, if it was a coroutine function."""
        if inspect.isawaitable(returned):
            await returned

    async def pause(self) -> None:
        """Let the loop run other tasks."""
        await asyncio.sleep(0)

    def close(self) -> None:
        """End the client's thread, if it has one."""


class BlockingWaits:
    """`AsyncWaits` for waits in the caller's thread; the network runs on the loop of `driver`."""

    event = SignalSafeEvent
    caller: Callable[[], object] = staticmethod(threading.get_ident)

    driver: Driver
    """Set when the settings of the client are known to be valid."""

    def call(self, function: Callable[..., object], *args: object) -> None:
        self.driver.call_soon(function, *args)

    async def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        return self.driver.run(coroutine, timeout_s)

    async def acquire(self, lock: LockType, timeout_s: float) -> bool:
        return lock.acquire(timeout=timeout_s)

    async def listener(self, returned: object) -> None:
        pass

    async def pause(self) -> None:
        pass

    def close(self) -> None:
        self.driver.close()


Waits = AsyncWaits | BlockingWaits


class AsyncContext:
    """A client for `async with`."""

    async def _exit(self, error: BaseException | None) -> None:
        """Close the client at the end of the block, which may have raised `error`."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit(error)


class BlockingContext:
    """A client for `with`."""

    async def _exit(self, error: BaseException | None) -> None:
        """As for `AsyncContext`, by `BlockingWaits`."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._exit(error))
