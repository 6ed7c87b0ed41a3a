"""One timer for a deadline that moves often, usually to a later time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.raft.connections import FOREVER

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater, TimerHandle


class DeadlineTimer:
    """Calls `wake` at the deadline or earlier; `wake` sets the timer again. Without `call_later` it does nothing."""

    def __init__(self, clock: Clock, call_later: CallLater | None, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._call_later = call_later
        self._wake = wake
        self._handle: TimerHandle | None = None
        self._at_ms = FOREVER

    def set(self, deadline_ms: int) -> None:
        """Move the deadline. A timer that fires too early stays, because most deadlines move on before they pass."""
        if (
            self._call_later is None
            or deadline_ms >= FOREVER
            or (self._handle is not None and self._at_ms <= deadline_ms)
        ):
            return
        self.cancel()
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms()) + 1
        self._at_ms = deadline_ms
        self._handle = self._call_later(delay_ms / 1000, self._fire)

    def cancel(self) -> None:
        """Do not call `wake`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._wake()
