"""The quotas of this node's replication, with the limits that its settings have now. KIP-73, KIP-113.

Only replicas that `*.replication.throttled.replicas` of their topic name are limited, and only while they are not in
sync: a leader sends them no records, and a follower does not fetch them, until the rate of all of them is low enough.
Those that are in sync count, but never wait: they would leave the in-sync replicas. Mirrors have a `FetchLimit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.common.rate import UNLIMITED, SampledRate, TokenBucket
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


class Throttling(NamedTuple):
    """The effect of a limit: the limit and the rate of the last seconds, in bytes per second."""

    limit: int
    rate: int
    is_delaying: bool
    """Whether a fetch had to wait in the last seconds."""


class FetchLimit:
    """The limit of the bytes that the fetchers of one mirror receive together.

    In any time, they receive at most what the limit allows for it, and three quarters of a second's bytes more. Only a
    larger batch is received completely, and followed by a longer pause.
    """

    # A `ReplicationQuota` limits the average of eleven seconds: ten seconds' bytes may follow a silence at once.
    _BURST_S: Final = 0.25
    # All fetches in flight together. A fetch and its way to the source should not take longer.
    _IN_FLIGHT_S: Final = 0.5
    # A changed limit has an effect after this time.
    _MOST_WAIT_MS: Final = 1000

    # The rate that is reported is of this time.
    _REPORTED_MS: Final = 10_000

    __slots__ = ("_bucket", "_clock", "_delayed_ms", "_fetchers", "_limit", "_rate")

    def __init__(self, clock: Clock, limit: Callable[[], int]) -> None:
        """`limit` returns the present limit, in bytes per second."""
        self._bucket = TokenBucket(self._BURST_S)
        self._rate = SampledRate(10, self._REPORTED_MS // 10)
        # When a fetch last had to wait, by the monotonic clock.
        self._delayed_ms: int | None = None
        self._clock = clock
        self._limit = limit
        self._fetchers: set[object] = set()

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self._limit() < UNLIMITED

    def record(self, size: int) -> None:
        """Count `size` received bytes."""
        now_ms = self._clock.monotonic_ms()
        self._bucket.take(size, self._limit(), now_ms)
        self._rate.record(size, now_ms)

    def wait_ms(self) -> int:
        """How long nothing may be fetched; 0 if something may."""
        limit = self._limit()
        if not limit < UNLIMITED:
            return 0
        now_ms = self._clock.monotonic_ms()
        wait_ms = min(self._bucket.wait_ms(limit, now_ms), self._MOST_WAIT_MS)
        if wait_ms:
            self._delayed_ms = now_ms
        return wait_ms

    def throttling(self) -> Throttling | None:
        """The effect of the limit now; None without a limit."""
        if not self.is_set:
            return None
        now_ms = self._clock.monotonic_ms()
        is_delaying = self._delayed_ms is not None and now_ms - self._delayed_ms < self._REPORTED_MS
        return Throttling(self._limit(), int(self._rate.per_second(now_ms)), is_delaying)

    def fetch_bytes(self, fetcher: object) -> int:
        """The most bytes of the next fetch of a fetcher, which shares them with all others until `leave`."""
        self._fetchers.add(fetcher)
        return max(int(self._limit() * self._IN_FLIGHT_S) // len(self._fetchers), 1)

    def leave(self, fetcher: object) -> None:
        """The fetcher has nothing to fetch any more."""
        self._fetchers.discard(fetcher)


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
