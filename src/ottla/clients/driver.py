"""The loop behind a blocking face: one asyncio loop in a daemon thread, to which calls are handed.

Each blocking client has a driver of its own, so that a slow callback of one never holds up the heartbeats of another.
A forked child has none of the parent's threads: using the parent's client there raises, it must make its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.clients.errors import ClientError, Closed, RequestTimedOut

R = TypeVar("R")

CLOSE_TIMEOUT_S: Final = 5.0


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Driver:
    """A loop in a thread. `run` waits for a coroutine, `call_soon` does not wait."""

    def __init__(self, name: str = "ottla-client") -> None:
        self.loop = _new_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

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
        """Whether it was closed."""
        return self._closed

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that made the driver: it has no thread here."""
        return self._pid != os.getpid()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the loop: in a callback, where waiting would wait for itself."""
        return threading.get_ident() == self._thread.ident

    def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """What `coroutine` returns or raises. Blocks; after `timeout_s` it is cancelled and RequestTimedOut raised.

        Interrupted (Ctrl-C), it cancels the coroutine. Raises Closed, and ClientError in a callback or a forked child.
        """
        try:
            self.check()
            if self.is_current_thread:
                raise ClientError("A blocking call from a callback would wait for itself for ever")
        except ClientError:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # the coroutine's own
                raise
            future.cancel()
            raise RequestTimedOut(f"Not done within {timeout_s:g} s") from error
        except concurrent.futures.CancelledError as error:
            raise Closed("The client was closed") from error
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the loop call `function(*arguments)`; returns at once. Raises Closed."""
        self.check()
        self.loop.call_soon_threadsafe(function, *arguments)

    def check(self) -> None:
        """Raise what every call would: Closed, or ClientError in a forked child."""
        self.check_fork()
        if self._closed:
            raise Closed("The client was closed")

    def check_fork(self) -> None:
        """Raise ClientError in a forked child."""
        if self.is_foreign:
            raise ClientError("This client was made before a fork: make one in each process")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Stop the loop and wait for its thread; what still runs on it is cancelled. Does nothing the second time."""
        if self._closed or self.is_foreign:
            return
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current_thread:
            self._thread.join(timeout_s)
