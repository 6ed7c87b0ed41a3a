"""The settings of a share group that its share partitions obey, and the modes of acquisition."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class AcquireMode(enum.IntEnum):
    """Whether a fetch may acquire more than `max_records`, up to the end of a batch (the default), or not. KIP-1206."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Settings of a share group. They may change while a share partition is in use."""

    lock_duration_ms: int = 30_000
    """group.share.record.lock.duration.ms"""
    max_delivery_count: int = 5
    """group.share.delivery.count.limit"""
    max_record_locks: int = 2_000
    """group.share.partition.max.record.locks"""
    is_renewal_enabled: bool = True
    """share.renew.acknowledge.enable"""

    @property
    def throttled_delivery_count(self) -> int:
        """Records that were delivered so often are delivered in smaller and smaller numbers, as in Kafka."""
        return max(2, (self.max_delivery_count + 1) // 2)
