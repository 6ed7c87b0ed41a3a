"""The quotas of this node's replication, with the limits that its settings have now. KIP-73, KIP-113."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.replication.rate import ByteRate, ReplicationQuota

if TYPE_CHECKING:
    from ottla.config import BrokerConfig


class ReplicationQuotas:
    """`moves`: what is copied between log directories."""

    def __init__(self, static: BrokerConfig, present: Callable[[], BrokerConfig]) -> None:
        """`present` returns the settings with the dynamic ones applied."""
        between = static.int("alter.log.dirs.replication.quota.window.num")
        between_s = static.int("alter.log.dirs.replication.quota.window.size.seconds")
        self.moves = ReplicationQuota(
            ByteRate(between, between_s * 1000),
            lambda: present().int("replica.alter.log.dirs.io.max.bytes.per.second"),
        )
