"""The settings of streams groups: the broker's `group.streams.*`, and `streams.*` of a single group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordinators.settings import whole_numbers


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """Defaults are Kafka's; times in milliseconds."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0
    max_size: int = 2**31 - 1

    @classmethod
    def from_settings(cls, setting: Callable[[str], object]) -> StreamsGroupConfig:
        """Read the broker's settings through `setting(name)`; raises TypeError if a value is not an integer."""
        number = whole_numbers(setting)
        return cls(
            session_timeout_ms=number("group.streams.session.timeout.ms"),
            heartbeat_interval_ms=number("group.streams.heartbeat.interval.ms"),
            assignment_interval_ms=number("group.streams.assignment.interval.ms"),
            initial_rebalance_delay_ms=number("group.streams.initial.rebalance.delay.ms"),
            num_standby_replicas=number("group.streams.num.standby.replicas"),
            max_size=number("group.streams.max.size"),
        )
