"""The broker's clock in tests: the machine's, moved by as much as a test says.

The wall clock may be moved both ways, as real ones are; the steady clock goes only forward.
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
        """Milliseconds since the Unix epoch, as the broker is to believe."""
        return self._machine.wall_ms() + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        return self._machine.monotonic_ms() + self.steady_ahead_ms

    def advance(self, milliseconds: int) -> None:
        """Move it; back only the wall."""
        self.wall_ahead_ms += milliseconds
        self.steady_ahead_ms += max(milliseconds, 0)

    def reset(self) -> None:
        """The wall clock is right again; what has passed on the steady one has passed."""
        self.wall_ahead_ms = 0
