"""Protects what expires by the wall clock from a wall clock that is wrong for a short time."""

from __future__ import annotations

from ottla.coordinators.events import Moment

CLOCK_JUMP_MS = 600_000


class ExpiryClock:
    """Notices that the wall clock was set between two checks for expired state."""

    __slots__ = ("_wall_ahead_ms",)

    def __init__(self) -> None:
        # The difference of the wall clock and the monotonic clock at the last check.
        self._wall_ahead_ms: int | None = None

    def was_set(self, now: Moment) -> bool:
        """Whether the wall clock was set since the previous call."""
        before_ms, self._wall_ahead_ms = self._wall_ahead_ms, now.wall_ms - now.monotonic_ms
        return before_ms is not None and abs(self._wall_ahead_ms - before_ms) >= CLOCK_JUMP_MS
