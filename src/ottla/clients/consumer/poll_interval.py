"""Watches max.poll.interval.ms: how long ago the user's last poll ended. The time is an argument."""

from __future__ import annotations


class PollInterval:
    """The time between the polls of one group member."""

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._polling = False
        self._polled_ms: float | None = None

    def polling(self, is_polling: bool, now_ms: float) -> None:
        """Note the begin or the end of a poll."""
        self._polling = is_polling
        self._polled_ms = now_ms

    @property
    def due_ms(self) -> float | None:
        """When the next poll is due at the latest; None during a poll and before the first one."""
        return None if self._polling or self._polled_ms is None else self._polled_ms + self._limit_ms

    def exceeded(self, now_ms: float) -> str | None:
        """Return why the member must leave its group; None if it polled recently enough."""
        due_ms = self.due_ms
        if due_ms is None or now_ms < due_ms:
            return None
        idle_s = (now_ms - due_ms + self._limit_ms) / 1000
        return (
            f"no poll for {idle_s:.1f} s, more than max.poll.interval.ms ({self._limit_ms}): the member left its "
            "group. Poll more often, take fewer records at a time (max.poll.records), or raise max.poll.interval.ms"
        )
