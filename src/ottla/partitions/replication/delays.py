"""Partitions that a fetcher skips for a time, after an error or because of a quota."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater, TimerHandle

K = TypeVar("K")


class Delays(Generic[K]):
    """Calls `over(keys)` with the keys whose delays are over; one timer serves all delays."""

    def __init__(self, clock: Clock, call_later: CallLater, over: Callable[[list[K]], None]) -> None:
        self._clock = clock
        self._call_later = call_later
        self._over = over
        self._due_ms: dict[K, int] = {}
        self._timer: TimerHandle | None = None
        self._timer_ms = 0

    def add(self, key: K, wait_ms: int) -> None:
        """Begin a delay, instead of an earlier one of this key."""
        due_ms = self._due_ms[key] = self._clock.monotonic_ms() + wait_ms
        self._set_timer(due_ms)

    def drop(self, key: K) -> None:
        """Forget the delay of a key, if there is one."""
        self._due_ms.pop(key, None)

    def close(self) -> None:
        """Forget all delays."""
        self._due_ms.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None and self._timer_ms <= due_ms:
            return
        if self._timer is not None:  # a throttled partition may wait for much longer than one with an error
            self._timer.cancel()
        wait_ms = due_ms - self._clock.monotonic_ms()
        self._timer = self._call_later(max(wait_ms, 1) / 1000, self._end)
        self._timer_ms = due_ms

    def _end(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        due = [key for key, due_ms in self._due_ms.items() if due_ms <= now_ms]
        for key in due:
            del self._due_ms[key]
        if self._due_ms:
            self._set_timer(min(self._due_ms.values()))
        self._over(due)
