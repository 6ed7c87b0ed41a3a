"""The quorum as its leader reports it to DescribeQuorum. KIP-595, KIP-836, KIP-853."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.values import value
from ottla.raft.leader import Leader, Replica
from ottla.raft.state import QuorumState
from ottla.raft.values import Endpoints, ReplicaKey


@value
class ReplicaDescription:
    """One voter or observer. Times are in wall-clock milliseconds, -1 if unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: Endpoints = ()


@value
class QuorumDescription:
    """Leader, epoch, high watermark (-1 before the first commit of the epoch), and the progress of each replica."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]


def describe(q: QuorumState, now_ms: int, wall_ms: int) -> QuorumDescription | None:
    """The view of the leader; None if this replica is not the leader. The leader itself has always caught up."""
    leader = q.state
    if not isinstance(leader, Leader):
        return None
    leader.forget_observers(now_ms)

    def row(replica: Replica) -> ReplicaDescription:
        if replica.key.names(leader.key):
            return ReplicaDescription(replica.key, q.log.end.offset, wall_ms, wall_ms, replica.endpoints)
        times = (_wall(replica.last_fetch_ms), _wall(replica.caught_up_ms))
        return ReplicaDescription(replica.key, replica.end_offset, *times, replica.endpoints)

    def _wall(time_ms: int) -> int:
        return -1 if time_ms < 0 else wall_ms - (now_ms - time_ms)

    def rows(replicas: Iterable[Replica]) -> tuple[ReplicaDescription, ...]:
        return tuple(row(replica) for replica in sorted(replicas, key=lambda r: r.key))

    return QuorumDescription(
        q.config.node_id, q.epoch, leader.high_watermark, rows(leader.voters.values()), rows(leader.observers.values())
    )
