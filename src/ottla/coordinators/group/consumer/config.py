"""The settings of consumer groups: the broker's `group.consumer.*`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordinators.settings import whole_numbers


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Defaults are Kafka's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the assignors that members may choose, the default first."""
    regex_refresh_interval_ms: int = 600_000
    may_upgrade: bool = True
    """Whether a classic group with members becomes a consumer group when a consumer member joins."""
    may_downgrade: bool = True
    """Whether a consumer group becomes a classic group when its last consumer member leaves."""

    @classmethod
    def from_settings(cls, setting: Callable[[str], object]) -> ConsumerGroupConfig:
        """Read the broker's settings through `setting(name)`; raises TypeError if a value has another type."""
        number = whole_numbers(setting)
        assignors = setting("group.consumer.assignors")
        if not isinstance(assignors, tuple | list):
            raise TypeError(f"group.consumer.assignors is {assignors!r}, not a list")
        policy = str(setting("group.consumer.migration.policy")).lower()
        return cls(
            session_timeout_ms=number("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
            assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
            max_size=number("group.consumer.max.size"),
            assignors=tuple(map(str, assignors)),
            regex_refresh_interval_ms=number("group.consumer.regex.refresh.interval.ms"),
            may_upgrade=policy in {"upgrade", "bidirectional"},
            may_downgrade=policy in {"downgrade", "bidirectional"},
        )
