"""Chooses the replica that a consumer reads: one in its own rack (Kafka's RackAwareReplicaSelector). KIP-392."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.partitions.partition import Partition
    from ottla.replication.leader import ClusterView

NO_REPLICA = -1


class RackAwareSelector:
    """Selects for one consumer, in the rack `rack`."""

    def __init__(self, cluster: ClusterView, rack: str) -> None:
        self._cluster = cluster
        self._rack = rack

    def select(self, partition: Partition, offset: int) -> int:
        """The most caught-up follower in the rack that has the offset; -1 to read from the leader."""
        replication = partition.replication
        if replication is None or self._is_in_rack(self._cluster.node_id):
            return NO_REPLICA
        candidates = [
            follower
            for follower in replication.followers.values()
            if self._is_in_rack(follower.node_id)
            and follower.log_end_offset >= offset >= follower.log_start_offset >= 0
        ]
        if not candidates:
            return NO_REPLICA
        return max(candidates, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, -each.node_id)).node_id

    def _is_in_rack(self, node_id: int) -> bool:
        broker = self._cluster.brokers.get(node_id)
        return broker is not None and broker.rack == self._rack and not broker.fenced
