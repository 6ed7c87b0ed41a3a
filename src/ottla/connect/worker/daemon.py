"""A thread that runs calls in order. It is a daemon: a plugin that never returns must not keep the process alive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Daemon:
    """Runs calls one after the other. The thread starts with the first call, and ends after `finish`."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._started = False

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a call after the earlier ones; the future has its result or its exception."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(run)
        with self._lock:
            if not self._started:
                self._started = True
                self._thread.start()
        return future

    def finish(self) -> None:
        """End the thread after the calls that were submitted."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
