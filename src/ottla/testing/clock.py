"""The broker's clock in tests: the machine's clock plus an offset that the test sets.

The wall clock can move in both directions, like real ones. The monotonic clock only moves forward.
"""

from __future__ import annotations

from ottla.common.clock import SystemClock


class MovableClock:
    """A `Clock` that is ahead of the machine's."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self.wall_ahead_ms = 0
        self.steady_ahead_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, including the offset."""
        return self._machine.wall_ms() + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary fixed point in time; never decreases."""
        return self._machine.monotonic_ms() + self.steady_ahead_ms

    def advance(self, milliseconds: int) -> None:
        """Move both clocks; negative values only move the wall clock."""
        self.wall_ahead_ms += milliseconds
        self.steady_ahead_ms += max(milliseconds, 0)

    def reset(self) -> None:
        """Set the wall clock to the machine's. The monotonic clock keeps its offset."""
        self.wall_ahead_ms = 0
