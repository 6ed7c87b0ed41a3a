"""The metadata quorum as its leader reports it to DescribeQuorum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.common.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from ottla.raft import RaftCore


@dataclass(frozen=True, slots=True)
class VoterState:
    """One voter. Times are in wall-clock milliseconds, -1 if unknown."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """Leader, epoch, high watermark, and the position of each voter."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[VoterState, ...]


def describe(raft: RaftCore, directory_id: Uuid, log_end_offset: int, now_ms: int) -> QuorumDescription:
    """Describe the quorum; only a quorum of one voter is supported, whose log is this node's."""
    voters = tuple(
        VoterState(voter, directory_id if voter == raft.node_id else ZERO_UUID, log_end_offset, now_ms, now_ms)
        for voter in sorted(raft.voters)
    )
    return QuorumDescription(raft.election.leader_id, raft.epoch, raft.high_watermark, voters)
