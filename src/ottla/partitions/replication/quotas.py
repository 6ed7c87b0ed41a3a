"""The quotas of this node's replication, with the limits that its settings have now. KIP-73, KIP-113.

Only replicas that `*.replication.throttled.replicas` of their topic name are limited, and only while they are not in
sync: a leader sends them no records, and a follower does not fetch them, until the rate of all of them is low enough.
Those that are in sync count, but never wait: they would leave the in-sync replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.rate import SampledRate
from ottla.metadata.image import TOPIC
from ottla.replication.throttled_replicas import throttles

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.ids import TopicPartition
    from ottla.config import BrokerConfig
    from ottla.metadata.image import MetadataImage

_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


class ReplicationQuota:
    """The limit of one kind of traffic, whose rate has `samples` of `sample_ms`."""

    __slots__ = ("_clock", "_limit", "_rate", "_sample_ms", "topics")

    def __init__(self, samples: int, sample_ms: int, clock: Clock, limit: Callable[[], int]) -> None:
        """`limit` returns the present limit, in bytes per second."""
        self._rate = SampledRate(samples, sample_ms)
        self._sample_ms = sample_ms
        self._clock = clock
        self._limit = limit
        self.topics: dict[str, frozenset[int] | None] = {}
        """The throttled partitions of each topic that has any; None for all."""

    def is_throttled(self, partition: TopicPartition) -> bool:
        """Whether this node's replica of the partition is limited."""
        if partition.topic not in self.topics:
            return False
        indexes = self.topics[partition.topic]
        return indexes is None or partition.partition in indexes

    def record(self, size: int) -> None:
        """Count traffic of `size` bytes."""
        self._rate.record(size, self._clock.monotonic_ms())

    def wait_ms(self) -> int:
        """How long the traffic has to stop; 0 if not at all. At most one sample: the limit may change meanwhile."""
        return min(self._rate.wait_ms(self._limit(), self._clock.monotonic_ms()), self._sample_ms)


class ReplicationQuotas:
    """`leader`: sent to followers; `follower`: fetched from leaders; `moves`: copied between log directories."""

    def __init__(self, static: BrokerConfig, present: Callable[[], BrokerConfig], clock: Clock) -> None:
        """`present` returns the settings with the dynamic ones applied."""
        self._node_id = static.node_id
        samples = static.int("replication.quota.window.num")
        sample_ms = static.int("replication.quota.window.size.seconds") * 1000
        self.leader = ReplicationQuota(
            samples, sample_ms, clock, lambda: present().int("leader.replication.throttled.rate")
        )
        self.follower = ReplicationQuota(
            samples, sample_ms, clock, lambda: present().int("follower.replication.throttled.rate")
        )
        between = static.int("alter.log.dirs.replication.quota.window.num")
        between_ms = static.int("alter.log.dirs.replication.quota.window.size.seconds") * 1000
        self.moves = ReplicationQuota(
            between,
            between_ms,
            clock,
            lambda: present().int("replica.alter.log.dirs.io.max.bytes.per.second"),
        )

    def publish(self, image: MetadataImage) -> None:
        """Take in changed settings of topics."""
        for name, quota in ((_LEADERS, self.leader), (_FOLLOWERS, self.follower)):
            quota.topics = {
                topic: throttles(values[name], self._node_id)
                for (kind, topic), values in image.configs.items()
                if kind == TOPIC and values.get(name)
            }
