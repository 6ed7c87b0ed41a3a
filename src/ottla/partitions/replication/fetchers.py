"""Which fetcher follows which partition.

Each leader has `num.replica.fetchers` fetchers and a spare one. A partition is followed by the fetcher that its name
selects, or by the spare one if that fetcher is waiting for an answer of its leader, which may take
`replica.fetch.wait.max.ms`: after an election the records of a partition must not wait for that. With that answer, the
fetcher takes its partitions from the spare one, which is free for the next election.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from zlib import crc32

from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from ottla.common.ids import TopicPartition
    from ottla.partitions.partition import Partition
    from ottla.partitions.replication.followed import FollowingPartition
    from ottla.partitions.replication.quotas import Throttling

NO_LEADER = -1
# Partitions that a fetcher takes from the spare one before a fetch.
MOST_TAKEN = 500


class ReplicaFetchers:
    """The fetchers of one node; a `RoleListener`."""

    def __init__(self, context: FetcherContext, fetchers_per_leader: Callable[[], int]) -> None:
        """A changed number has an effect on leaders from which nothing was fetched before."""
        self._context = context
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[int, list[ReplicaFetcher]] = {}
        self._followed: dict[TopicPartition, tuple[FollowingPartition, ReplicaFetcher]] = {}
        self._closed = False

    def as_of_ms(self, partition: FollowingPartition) -> int:
        """See `ReplicaFetcher.as_of_ms`."""
        known = self._followed.get(partition.log.topic_partition)
        return known[1].as_of_ms(partition) if known is not None and known[0] is partition else -1

    def throttling(self) -> Throttling | None:
        """The effect of the limit of these fetchers; None without one."""
        return None if self._context.limit is None else self._context.limit.throttling()

    def leading(self, partition: Partition) -> None:
        """Nothing is fetched: `unfollowed` was called before."""

    def resigned(self, partition: Partition) -> None:
        """Nothing changes until the node follows the partition."""

    def following(self, partition: FollowingPartition) -> None:
        """Fetch from the leader in its epoch; without a leader, from no node."""
        topic_partition = partition.log.topic_partition
        known = self._followed.get(topic_partition)
        if known is not None and known[1].leader_id == partition.leader_id and known[0] is partition:
            known[1].follow(partition)
            return
        self.unfollowed(partition)
        if partition.leader_id == NO_LEADER or self._closed:
            return
        fetcher = self._choose(partition.leader_id, topic_partition)
        self._followed[topic_partition] = partition, fetcher
        fetcher.follow(partition)

    def unfollowed(self, partition: FollowingPartition) -> None:
        """Stop to fetch the partition."""
        known = self._followed.pop(partition.log.topic_partition, None)
        if known is not None:
            fetcher = known[1]
            fetcher.unfollow(known[0])
            others = self._fetchers.get(fetcher.leader_id, [])
            if not any(map(len, others)):
                for each in self._fetchers.pop(fetcher.leader_id, []):
                    each.close()

    def _choose(self, leader_id: int, topic_partition: TopicPartition) -> ReplicaFetcher:
        fetchers = self._fetchers.get(leader_id)
        if fetchers is None:
            count = self._per_leader() + 1
            fetchers = [ReplicaFetcher(self._context, leader_id, index) for index in range(count)]
            self._fetchers[leader_id] = fetchers
            for fetcher in fetchers[:-1]:
                fetcher.before_fetch = self._take_from_spare
        *regular, spare = fetchers
        chosen = _select(regular, topic_partition)
        return spare if chosen.is_busy and not spare.is_busy else chosen

    def _take_from_spare(self, fetcher: ReplicaFetcher) -> None:
        """A regular fetcher is about to fetch."""
        *regular, spare = self._fetchers[fetcher.leader_id]
        if not len(spare):
            return
        for partition in spare.partitions(MOST_TAKEN):
            topic_partition = partition.log.topic_partition
            if _select(regular, topic_partition) is fetcher:
                spare.unfollow(partition)
                fetcher.follow(partition)
                self._followed[topic_partition] = partition, fetcher

    def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        for fetchers in self._fetchers.values():
            for fetcher in fetchers:
                fetcher.close()
        self._fetchers.clear()
        self._followed.clear()


def _select(fetchers: list[ReplicaFetcher], topic_partition: TopicPartition) -> ReplicaFetcher:
    return fetchers[crc32(str(topic_partition).encode()) % len(fetchers)]
