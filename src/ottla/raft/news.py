"""News about epochs and leaders: what every request and response of another node says. KIP-595.

A higher epoch ends this replica's role. A leader of the present epoch turns it into a follower. An epoch has one
leader, so that another leader of the same epoch is an error of the quorum.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft.messages import LeaderResponse
from ottla.raft.roles import Role
from ottla.raft.state import QuorumError, QuorumState
from ottla.raft.values import NO_NODE, Endpoints

_NEWS_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def contradicts(q: QuorumState, epoch: int, leader_id: int) -> bool:
    """Whether this replica knows another leader of this epoch, or would know if it led the epoch itself."""
    if leader_id == NO_NODE or epoch != q.epoch:
        return False
    if leader_id == q.config.node_id:
        return q.role in (Role.CANDIDATE, Role.PROSPECTIVE) or q.election.leader_id not in (leader_id, NO_NODE)
    return q.election.has_leader and q.election.leader_id != leader_id


def learn(q: QuorumState, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
    """Move to a higher epoch, or follow the leader of the present one. Older news have no effect."""
    if leader_id >= 0:
        endpoints = endpoints or q.voters.last.endpoints(leader_id)
    is_remote = leader_id not in (NO_NODE, q.config.node_id)
    if epoch > q.epoch:
        if is_remote and endpoints:
            q.become_follower(epoch, leader_id, endpoints)
        else:
            q.become_unattached(epoch, leader_id)
    elif epoch == q.epoch and is_remote and endpoints:
        knows_more = q.role is Role.FOLLOWER and len(endpoints) > len(q.leader_endpoints)
        if not q.election.has_leader or knows_more or (q.role is Role.UNATTACHED and q.election.leader_id == leader_id):
            q.become_follower(epoch, leader_id, endpoints)


def learn_from_response(q: QuorumState, response: LeaderResponse) -> bool | None:
    """Learn from a response; returns None if its result matters, otherwise whether the request succeeded.

    Raises QuorumError if the responder knows another leader of this epoch.
    """
    if response.epoch < q.epoch or response.error is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return False
    if contradicts(q, response.epoch, response.leader_id):
        raise QuorumError(
            f"Node {q.config.node_id} knows leader {q.election.leader_id} of epoch {q.epoch}, another node says"
            f" {response.leader_id}: two voters led one epoch, or one of them lost its {q.role.value} state"
        )
    if response.epoch > q.epoch or response.error in _NEWS_ERRORS:
        learn(q, response.epoch, response.leader_id, response.leader_endpoints)
        return False
    if response.leader_id != NO_NODE and (not q.election.has_leader or q.role is Role.UNATTACHED):
        # Unattached with a leader: after a restart, the leader's endpoints are not known any more.
        learn(q, response.epoch, response.leader_id, response.leader_endpoints)
    return None if response.error is ErrorCode.NONE else False
