"""Time as an argument: cores take `now_ms`, shells hold a `Clock`; tests bring their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: the wall for what is written down, a steady one for timers."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump both ways."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump both ways."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back."""
        return time.monotonic_ns() // 1_000_000
