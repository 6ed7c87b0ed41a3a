"""When a mirror compares its partitions with the source, and when topics and offsets of groups, too.

    pace.is_due(now_ms)         # if so: read topics and groups, then `pace.completed(now_ms)`
    pace.hurry()                # a promotion waits for the offsets of groups
    pace.retry()                # after an error of the source, or while a partition waits for the controller
    pace.pause_s()              # to sleep
    pace.wait_s(now_ms)         # and then to wait for `pace.wake`

Retries that follow each other double the pause up to the interval, so that neither an error nor a partition that waits
for ever loads the source. Topics and groups are read at the interval only.
"""

from __future__ import annotations

import asyncio
from typing import Final

# Notifications within this time are one.
SOON_MS: Final = 100


class Pace:
    """See the module's docstring. All times are of the monotonic clock, in milliseconds."""

    def __init__(self, interval_ms: int) -> None:
        self.wake = asyncio.Event()
        """Set if the next comparison is soon."""
        self._interval_ms = interval_ms
        self._due_ms: int | None = None
        self._pause_ms = SOON_MS
        self._is_retry = False
        self._is_urgent = False

    def is_due(self, now_ms: int) -> bool:
        """Whether topics and groups are due."""
        self._is_urgent = False
        return self._due_ms is None or now_ms >= self._due_ms

    def completed(self, begun_ms: int) -> None:
        """Topics and groups were read, from `begun_ms` on."""
        self._due_ms = None if self._is_urgent else begun_ms + self._interval_ms

    def hurry(self) -> None:
        """Topics and groups are due at once; a comparison that has begun already does not count."""
        self._is_urgent, self._due_ms = True, None
        self.wake.set()

    def retry(self) -> None:
        """Compare again soon, but after a longer pause than the previous one."""
        self._is_retry = True
        self.wake.set()

    def pause_s(self) -> float:
        """The seconds before the next comparison, at least."""
        doubled = min(self._pause_ms * 2, max(self._interval_ms, SOON_MS))
        self._pause_ms = doubled if self._is_retry else SOON_MS
        self._is_retry = False
        return self._pause_ms / 1000

    def wait_s(self, now_ms: int) -> float:
        """The seconds until topics and groups are due."""
        return 0.0 if self._due_ms is None else max(self._due_ms - now_ms, 0) / 1000
