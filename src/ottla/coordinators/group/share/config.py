"""The settings of share groups: the broker's `group.share.*`, and `share.*` of a single group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordinators.settings import whole_numbers


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Defaults are Kafka's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    initialize_retry_interval_ms: int = 30_000
    """After which time without an outcome the creation of share state is tried again."""

    @classmethod
    def from_settings(cls, setting: Callable[[str], object]) -> ShareGroupConfig:
        """Read the broker's settings through `setting(name)`; raises TypeError if a value is not an integer."""
        number = whole_numbers(setting)
        return cls(
            session_timeout_ms=number("group.share.session.timeout.ms"),
            heartbeat_interval_ms=number("group.share.heartbeat.interval.ms"),
            assignment_interval_ms=number("group.share.assignment.interval.ms"),
            max_size=number("group.share.max.size"),
        )
