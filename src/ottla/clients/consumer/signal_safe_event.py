"""The event that a blocking poll waits for."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock


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
        """End the current `wait`, or the next one."""
        with contextlib.suppress(RuntimeError):  # the event is set already
            self._unset.release()

    def clear(self) -> None:
        """Make the next `wait` wait."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Wait until the event is set, at most `timeout_s` seconds, and clear it."""
        self._unset.acquire(timeout=timeout_s)
