"""The event loop of a blocking client: an asyncio loop in a daemon thread that runs the client's coroutines.

Each blocking client has its own driver: a slow callback of one client cannot delay the heartbeats of another.
A forked child process does not have the parent's threads. Calls of the parent's client raise there: each process must
create its own client.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.clients.errors import ClientError, Closed, RequestTimedOut

R = TypeVar("R")

CLOSE_TIMEOUT_S: Final = 5.0
EXIT_TIMEOUT_S: Final = 1.0
"""How long the end of the program waits for the threads of clients that it has not closed."""


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # uvloop does not exist for every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Driver:
    """An event loop in a thread. `run` waits for a coroutine, `call_soon` does not wait."""

    def __init__(self, name: str = "ottla-client") -> None:
        self.loop = _new_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _open.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the process that created the driver, and so lacks its thread."""
        return self._pid != os.getpid()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the loop (in a callback), where waiting would be a deadlock."""
        return threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Run `coroutine` and return its result. After `timeout_s` it is cancelled and RequestTimedOut is raised.

        An interrupt (Ctrl-C) cancels the coroutine. Raises Closed, and ClientError in a callback or a forked child.
        """
        try:
            self.check()
            if self.is_current_thread:
                raise ClientError("A blocking call from a callback would wait for itself forever")
        except ClientError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # the coroutine itself raised it
                raise
            future.cancel()
            raise RequestTimedOut(f"Not done within {timeout_s:g} s") from error
        except concurrent.futures.CancelledError as error:
            raise Closed("The client was closed") from error
        except BaseException:  # also Ctrl-C: the coroutine must not go on without its caller
            future.cancel()
            raise

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Let the loop call `function(*arguments)`; returns at once. Raises Closed."""
        self.check()
        self.loop.call_soon_threadsafe(function, *arguments)

    def check(self) -> None:
        """Raise the error that every call would raise: Closed, or ClientError in a forked child."""
        self.check_fork()
        if self._closed:
            raise Closed("The client was closed")

    def check_fork(self) -> None:
        if self.is_foreign:
            raise ClientError("This client was created before a fork: create one in each process")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop the loop, cancel its tasks and wait for its thread. The second call does nothing."""
        if self._closed or self.is_foreign:
            return
        self._stop()
        if not self.is_current_thread:
            self._thread.join(timeout_s)

    def _stop(self) -> None:
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)


_open: weakref.WeakSet[Driver] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop the threads before Python ends.

    Python ends a daemon thread that wants to continue later, within the C code of uvloop; this was a segmentation fault
    in one of twelve programs that ended with 50 open clients and a dead broker.
    """
    deadline_s = time.monotonic() + EXIT_TIMEOUT_S
    drivers = [driver for driver in _open if not driver.closed and not driver.is_foreign]
    for driver in drivers:
        driver._stop()  # noqa: SLF001
    for driver in drivers:
        driver._thread.join(max(0.0, deadline_s - time.monotonic()))  # noqa: SLF001
