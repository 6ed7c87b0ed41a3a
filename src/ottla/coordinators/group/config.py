"""The settings of the group coordinator, read once from the broker's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.coordinators.group.consumer.config import ConsumerGroupConfig
from ottla.coordinators.group.share.config import ShareGroupConfig
from ottla.coordinators.group.streams.config import StreamsGroupConfig
from ottla.coordinators.settings import whole_numbers

MINUTE_MS = 60_000
# The minimum initial rebalance delay, which is extended while members join. Without a delay, the first of many members
# becomes a generation of its own within milliseconds, and learns of the others seconds later, with its next heartbeat.
LEAST_DELAY_MS = 20


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Defaults are Kafka's; times in milliseconds, sizes in bytes."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    # A client that joins without a member id cannot send heartbeats. Its member is removed after this time.
    new_member_join_timeout_ms: int = 300_000
    consumer: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    share: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    streams: StreamsGroupConfig = field(default_factory=StreamsGroupConfig)

    @classmethod
    def from_settings(cls, setting: Callable[[str], object]) -> GroupConfig:
        """Read the broker's settings through `setting(name)`; raises TypeError if a value is not an integer."""
        number = whole_numbers(setting)
        return cls(
            min_session_timeout_ms=number("group.min.session.timeout.ms"),
            max_session_timeout_ms=number("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=max(number("group.initial.rebalance.delay.ms"), LEAST_DELAY_MS),
            max_size=number("group.max.size"),
            offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * MINUTE_MS,
            offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
            consumer=ConsumerGroupConfig.from_settings(setting),
            share=ShareGroupConfig.from_settings(setting),
            streams=StreamsGroupConfig.from_settings(setting),
        )
