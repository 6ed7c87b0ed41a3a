"""Simulated time: a clock that a test moves, and the events planned on it."""

from __future__ import annotations

import heapq
from collections.abc import Callable

WALL_START_MS = 1_700_000_000_000


class SimulatedClock:
    """A `Clock` whose time only changes when an event is taken or `advance_to` is called. Times in milliseconds.

    Events of the same millisecond are taken in the order in which they were planned, so that a run depends on nothing
    but its seed.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._planned: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms

    def plan(self, delay_ms: int, event: Callable[[], object]) -> None:
        """Plan `event` to be taken `delay_ms` from now."""
        self._count += 1
        heapq.heappush(self._planned, (self.now_ms + delay_ms, self._count, event))

    def next_ms(self) -> int | None:
        """The time of the earliest planned event; None if no event is planned."""
        return self._planned[0][0] if self._planned else None

    def take_due(self) -> Callable[[], object] | None:
        """Take the earliest event whose time has come; None if no event is due."""
        if self._planned and self._planned[0][0] <= self.now_ms:
            return heapq.heappop(self._planned)[2]
        return None

    def clear(self) -> None:
        """Cancel all planned events."""
        self._planned.clear()

    def advance_to(self, time_ms: int) -> None:
        """Move the time forward; an earlier time changes nothing."""
        self.now_ms = max(self.now_ms, time_ms)
