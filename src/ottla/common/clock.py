"""Clocks: cores take `now_ms` as an argument, shells have a `Clock`, and tests pass their own."""

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock for timestamps on disk and in messages, and a steady clock for timers."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch; may jump forwards and backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary fixed time; never decreases."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def wall_ms(self) -> int:
        """Return the milliseconds since the Unix epoch; may jump forwards and backwards."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the milliseconds since an arbitrary fixed time; never decreases."""
        return time.monotonic_ns() // 1_000_000
