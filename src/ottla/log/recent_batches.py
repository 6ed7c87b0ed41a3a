"""A cache of the positions of recent batches, so that reads near the end of a log need no index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

_AT_LEAST = 1024
_NO_OFFSET = 1 << 63


class RecentBatches:
    """Last offsets and positions of the newest batches of an active segment.

    It knows the batches of all offsets from `first` on.
    """

    __slots__ = ("_last_offsets", "_positions", "first")

    def __init__(self, first: int = _NO_OFFSET) -> None:
        self.first = first
        self._last_offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, last_offset: int, position: int) -> None:
        """Add a batch that was appended; drops the oldest batches if there are many."""
        offsets = self._last_offsets
        offsets.append(last_offset)
        self._positions.append(position)
        if len(offsets) >= 2 * _AT_LEAST:
            self.first = offsets[_AT_LEAST - 1] + 1
            del offsets[:_AT_LEAST], self._positions[:_AT_LEAST]

    def begin_at(self, next_offset: int) -> None:
        """Know every batch from `next_offset` on, which will be the next one, unless batches are known already."""
        if not self._last_offsets:
            self.first = next_offset

    def locate(self, offset: int, end: int) -> int:
        """Return the position of the first batch that ends at `offset` (`first` or later) or later; else `end`."""
        i = bisect_left(self._last_offsets, offset)
        return self._positions[i] if i < len(self._positions) else end

    def cut(self, start: int, limit: int) -> int:
        """Return the greatest batch position from `start` to `limit`; -1 if `start` is not among these batches."""
        positions = self._positions
        if not positions or positions[0] > start:
            return -1
        return max(positions[bisect_right(positions, limit) - 1], start)


NO_BATCHES = RecentBatches()
"""Of segments without appends; never changed."""
