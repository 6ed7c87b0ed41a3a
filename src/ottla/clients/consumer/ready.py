"""The event for which a blocking poll waits."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock


class Ready:
    """An event that any thread or signal handler sets, and one thread waits for.

    threading.Event takes a lock in each method. A signal handler runs between two instructions of the main thread: if
    that thread polls and has the lock, a handler that calls `set` waits for ever. Here no method holds a lock.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = allocate_lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the `wait` that is under way, or the next one."""
        with contextlib.suppress(RuntimeError):  # it is set already
            self._unset.release()

    def clear(self) -> None:
        """Have the next `wait` wait."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Wait until it is set, for at most `timeout_s` seconds, and clear it."""
        self._unset.acquire(timeout=timeout_s)
