"""Many deadlines, one question: when is the next?

Heartbeats move a deadline far more often than one elapses. Moving it later only notes the new time; the heap still
holds the earlier one, which is put right when it comes up. So a heartbeat costs a dictionary write.
"""

from __future__ import annotations

import heapq
from enum import IntEnum
from typing import TypeAlias


class Kind(IntEnum):
    """What a deadline is for; the order in which those of one millisecond are handled."""

    JOIN = 0
    SYNC = 1
    SESSION = 2
    EXPIRY = 3


TimerKey: TypeAlias = tuple[Kind, str, str]
"""What for, the group's id, the member's id (empty for timers of the whole group)."""


class Timers:
    """Deadlines by key, in milliseconds of the steady clock."""

    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        # Invariant: every key of _deadlines is in _queued with a time no later than its deadline.
        self._queued: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Let `key` elapse at `deadline_ms`, instead of when it would have."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`; nothing happens if it was not set."""
        self._deadlines.pop(key, None)

    def deadline(self, key: TimerKey) -> int | None:
        """When `key` elapses, or None."""
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None if there is none."""
        heap = self._heap
        while heap:
            time_ms, key = heap[0]
            if self._queued.get(key) != time_ms:
                heapq.heappop(heap)
                continue
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == time_ms:
                return time_ms
            heapq.heappop(heap)
            if deadline_ms is None:
                del self._queued[key]
            else:
                self._queued[key] = deadline_ms
                heapq.heappush(heap, (deadline_ms, key))
        return None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Take one key whose deadline has come, the earliest first; None if there is none."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        key = heapq.heappop(self._heap)[1]
        del self._queued[key]
        del self._deadlines[key]
        return key

    def __len__(self) -> int:
        return len(self._deadlines)
