"""Which records of a fetch a member acquires, by Kafka's rules.

- A batch that is in flight is taken as a whole, even beyond `max_records`, unless the mode limits the records.
- Records that were delivered often are taken in smaller and smaller numbers, so that a record that crashes its consumer
  is found. On the last attempt a record is delivered alone.
- New records follow: as batches of about `batch_size` records, cut where record batches begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.coordinators.share.limits import AcquireMode, ShareLimits
from ottla.coordinators.share.state_batches import RecordState
from ottla.coordinators.share.window import Run, Window


class OffsetRange(NamedTuple):
    """The offsets from `first` to `last`, both included: a record batch, for example."""

    first: int
    last: int


class AcquiredRange(NamedTuple):
    """Records that a member has acquired, and how often they were delivered, this time included."""

    first: int
    last: int
    delivery_count: int


class Acquisition(NamedTuple):
    """The wishes of a member: at most about `max_records`, in batches of about `batch_size` records."""

    member_id: str
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Claim:
    """One acquisition in progress: what was acquired so far, and how much more may be.

    Cost: a constant number of steps for each run in the fetched range.
    """

    __slots__ = ("acquired", "count", "deadline_ms", "is_over", "limits", "member_id", "mode", "room")

    def __init__(self, request: Acquisition, room: int, limits: ShareLimits, now_ms: int) -> None:
        self.member_id = request.member_id
        self.mode = request.mode
        self.room = room
        self.limits = limits
        self.deadline_ms = now_ms + limits.lock_duration_ms
        self.acquired: list[AcquiredRange] = []
        self.count = 0
        # Records that were delivered often end an acquisition, so that few other records fail with them.
        self.is_over = False

    @property
    def remaining(self) -> int:
        """How many more records may be acquired."""
        return 0 if self.is_over else max(0, self.room - self.count)

    def take_in_flight(self, window: Window, wanted: OffsetRange) -> None:
        """Acquire the available records in the range that were in flight before."""
        offset = wanted.first
        while self.remaining and offset <= wanted.last:
            index = window.index_of(offset)
            if index == len(window.runs) or window.runs[index].first > wanted.last:
                return
            run = window.runs[index]
            last = min(run.batch_first + run.batch_size - 1, wanted.last)
            self._take_batch(window, max(offset, run.first), last)
            offset = last + 1

    def _take_batch(self, window: Window, first: int, last: int) -> None:
        available = [run for run in window.overlapping(first, last) if run.is_available]
        highest = max((run.delivery_count for run in available), default=0)
        is_throttled = highest >= self.limits.throttled_delivery_count
        if is_throttled and self.count:
            self.is_over = True
            return
        taken = 0
        most = self.remaining if self.mode is AcquireMode.RECORD_LIMIT else last - first + 1
        for run in available:
            size = min(last, run.last) - max(first, run.first) + 1
            is_last_attempt = self._is_last_attempt(run)
            if is_last_attempt and taken:
                break
            if run.delivery_count >= self.limits.throttled_delivery_count:
                most = min(most, self._throttled(run))
            size = 1 if is_last_attempt else min(size, most - taken)
            if size <= 0:
                break
            start = max(first, run.first)
            self._take(window, OffsetRange(start, start + size - 1), is_new_batch=not taken)
            taken += size
            if is_last_attempt:
                break
        self.is_over = is_throttled and taken > 0

    def _is_last_attempt(self, run: Run) -> bool:
        limit = self.limits.max_delivery_count
        return limit > 2 and run.delivery_count == limit - 1

    def _throttled(self, run: Run) -> int:
        shift = run.delivery_count - self.limits.throttled_delivery_count + 1
        return max(1, run.batch_size >> shift)

    def _take(self, window: Window, taken: OffsetRange, *, is_new_batch: bool) -> None:
        for run in window.cut(taken.first, taken.last):
            run.acquire(self.member_id, self.deadline_ms)
            previous = self.acquired[-1] if self.acquired and not is_new_batch else None
            is_new_batch = False
            if previous and previous.last + 1 == run.first and previous.delivery_count == run.delivery_count:
                self.acquired[-1] = previous._replace(last=run.last)
            else:
                self.acquired.append(AcquiredRange(run.first, run.last, run.delivery_count))
        self.count += taken.last - taken.first + 1

    def take_new(self, window: Window, new: OffsetRange, fetched: Sequence[OffsetRange], batch_size: int) -> int:
        """Acquire records that were not in flight, and return the last offset that is in flight now.

        If the mode limits the records, the rest of their batch comes into the window too, but stays available.
        """
        last = new.last
        if self.remaining < new.last - new.first + 1:
            last = min(last, _end_of_batch(fetched, new.first + self.remaining - 1))
        if self.mode is AcquireMode.RECORD_LIMIT:
            pieces = [OffsetRange(new.first, last)]
        else:
            pieces = _pieces(fetched, OffsetRange(new.first, last), batch_size)
        for piece in pieces:
            window.runs.append(Run(piece.first, piece.last, RecordState.AVAILABLE, 0))
            size = piece.last - piece.first + 1
            if self.mode is AcquireMode.RECORD_LIMIT:
                size = min(size, self.remaining)
            self._take(window, OffsetRange(piece.first, piece.first + size - 1), is_new_batch=True)
        return last


def _end_of_batch(fetched: Sequence[OffsetRange], offset: int) -> int:
    """The last offset of the record batch with `offset`; `offset` itself if no batch contains it."""
    return next((batch.last for batch in fetched if batch.first <= offset <= batch.last), offset)


def _pieces(fetched: Iterable[OffsetRange], new: OffsetRange, batch_size: int) -> list[OffsetRange]:
    pieces: list[OffsetRange] = []
    first = new.first
    for batch in fetched:
        if batch.first > new.last:
            break
        if batch.first - first >= max(1, batch_size):
            pieces.append(OffsetRange(first, batch.first - 1))
            first = batch.first
    pieces.append(OffsetRange(first, new.last))
    return pieces


def without_ranges(acquired: Iterable[AcquiredRange], excluded: Sequence[OffsetRange]) -> list[AcquiredRange]:
    """The acquired ranges without the offsets of `excluded`. Both are sorted and have no overlaps."""
    result: list[AcquiredRange] = []
    index = 0
    for piece in acquired:
        first = piece.first
        while index < len(excluded) and excluded[index].first <= piece.last:
            hole = excluded[index]
            if hole.first > first:
                result.append(AcquiredRange(first, hole.first - 1, piece.delivery_count))
            first = max(first, hole.last + 1)
            if hole.last > piece.last:
                break
            index += 1
        if first <= piece.last:
            result.append(AcquiredRange(first, piece.last, piece.delivery_count))
    return result
