"""`LogConfig`: the settings of a topic that its logs use. Names and defaults are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.common.values import value

_INT64_MAX = (1 << 63) - 1


@value
class LogConfig:
    """Sizes in bytes, times in milliseconds; -1 means no limit, as in Kafka."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = _INT64_MAX
    flush_ms: int = _INT64_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    max_message_bytes: int = 1_048_588
    # This is a setting of the broker, not of the topic.
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @classmethod
    def from_topic_config(cls, values: Mapping[str, object]) -> LogConfig:
        """Create from Kafka's names ("segment.bytes") and typed values; other names are ignored."""
        return cls().with_overrides(values)

    def with_overrides(self, values: Mapping[str, object]) -> LogConfig:
        """A copy with the given settings replaced."""
        changes: dict[str, Any] = {}
        for name, given in values.items():
            attribute = name.replace(".", "_")
            if attribute not in self.__match_args__ or given is None:
                continue
            if attribute == "cleanup_policy":
                changes[attribute] = _policies(given)
            elif attribute == "min_cleanable_dirty_ratio":
                changes[attribute] = float(str(given))
            else:
                changes[attribute] = int(str(given))
        return replace(self, **changes)

    @property
    def max_segment_ms(self) -> int:
        """The time after which a segment is rolled. The cleaner skips the active one, so its deadline counts, too."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def compacts(self) -> bool:
        """Whether the cleaner retains only the last record of each key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy


def _policies(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple | set | frozenset):
        return frozenset(str(part) for part in value)
    raise TypeError(f"cleanup.policy is {value!r}, which is not a string or a list")
