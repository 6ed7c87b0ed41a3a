"""Deadlines by key, with the earliest one first.

Heartbeats postpone deadlines far more often than a deadline elapses. Postponing only writes the new time to a
dictionary and leaves the earlier time in the heap, where it is corrected when it reaches the top. So a heartbeat costs
one dictionary write, and each correction costs O(log n).

Invariant: every key with a deadline is in the heap with a time not later than its deadline. Hence the top of the heap,
once corrected, is the earliest deadline. A heap entry whose time differs from `_queued` is obsolete and is dropped.

The entry of a cancelled key would stay until its time: minutes for a member that has left, days for a transactional id.
When most entries are of no use, the heap is rebuilt, at a cost that the cancellations before it have paid.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

_REBUILT_FROM = 64
"""Entries of a heap that is never rebuilt."""
_MOST_ENTRIES = 4
"""Entries for each deadline, above which a heap is rebuilt."""

Key = TypeVar("Key", bound=Hashable)


class Timers(Generic[Key]):
    """Deadlines in milliseconds of the monotonic clock; equal ones elapse in the order of keys."""

    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[Key, int] = {}
        # The time of each key's valid heap entry.
        self._queued: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, replacing a previous one."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heapq.heappush(self._heap, (deadline_ms, key))

    def cancel(self, key: Key) -> None:
        """Cancel the deadline of `key`, if it is set."""
        if self._deadlines.pop(key, None) is None:
            return
        if len(self._heap) > max(_REBUILT_FROM, _MOST_ENTRIES * len(self._deadlines)):
            self._queued = dict(self._deadlines)
            self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
            heapq.heapify(self._heap)

    def deadline(self, key: Key) -> int | None:
        """The deadline of `key`, or None."""
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None if no deadline is set."""
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

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the key with the earliest elapsed deadline; None if no deadline has elapsed."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        key = heapq.heappop(self._heap)[1]
        del self._queued[key]
        del self._deadlines[key]
        return key

    def __len__(self) -> int:
        return len(self._deadlines)
