"""Samples the event loop: how late its timers run, and which part of the time its thread is idle.

One timer every `INTERVAL_S`; each sample costs some microseconds. A request of any client waits at most as long as the
event loop was late.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.25
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# The thread's CPU time of the last samples gives its idle share.
_IDLE_SAMPLES: Final = 40


class LoopDelay:
    """Samples until `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Delays by the smallest bound that is not exceeded; the last has the others."""
        self.total_s = 0.0
        self._max = [0.0, 0.0]
        # (wall seconds, CPU seconds of this thread) at some past sample, and at the last sample.
        self._busy: list[tuple[float, float]] = [(loop.time(), time.thread_time())]
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to sample."""
        self._due_s = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(self._due_s, self._sample)

    def stop(self) -> None:
        """Sample no more."""
        if self._timer is not None:
            self._timer.cancel()

    def rotate(self) -> None:
        """Begin a new window for the greatest delay."""
        self._max = [0.0, self._max[0]]

    @property
    def max_s(self) -> float:
        """The greatest delay of the last two windows."""
        return max(self._max)

    @property
    def idle(self) -> float:
        """The idle share of the thread, from 0 to 1, over the last samples; 1 before the first."""
        (began_s, began_cpu_s), (ended_s, ended_cpu_s) = self._busy[0], self._busy[-1]
        passed_s = ended_s - began_s
        return 1.0 if passed_s <= 0 else min(max(1 - (ended_cpu_s - began_cpu_s) / passed_s, 0.0), 1.0)

    def _sample(self) -> None:
        now_s = self._loop.time()
        # uvloop's timers have whole milliseconds, and may run a part of one early.
        late_s = max(now_s - self._due_s, 0.0)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        self.total_s += late_s
        self._max[0] = max(self._max[0], late_s)
        self._busy.append((now_s, time.thread_time()))
        if len(self._busy) > _IDLE_SAMPLES:
            del self._busy[0]
        self.start()


def cumulative(counts: list[int], emit: Callable[[str, int], None]) -> None:
    """Call `emit` with each bound and the number of delays up to it."""
    seen = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts, strict=True):
        seen += count
        emit(bound, seen)
