"""The begin and the end of a leader's epoch, as the other voters learn of them. KIP-595.

BeginQuorumEpoch tells who leads. EndQuorumEpoch tells that the leader resigns: each voter waits a little before it
stands, the voter with the longest log not at all, so that they do not compete. A closed connection has a similar
effect, because a leader that is killed sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.common.errors import ErrorCode
from ottla.raft import news
from ottla.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, QuorumEpochResponse, Response
from ottla.raft.responses import refusal
from ottla.raft.roles import Follower, Resigned
from ottla.raft.state import QuorumState
from ottla.raft.values import ReplicaKey

SUCCESSION_MS = 200
"""How much later each voter stands than the previous one by `_rank`: more than an election takes on a busy machine."""


def on_begin_request(q: QuorumState, request: BeginQuorumEpochRequest) -> Response:
    """Follow the leader that announces itself."""
    error = _leader_request_error(q, request)
    if error is not ErrorCode.NONE:
        return refusal(request, error, q.view)
    news.learn(q, request.epoch, request.leader_id, request.endpoints)
    if request.voter is not None and not request.voter.names(q.config.key):
        return refusal(request, ErrorCode.INVALID_VOTER_KEY, q.view)
    return QuorumEpochResponse(ErrorCode.NONE, *q.view)


def on_end_request(q: QuorumState, request: EndQuorumEpochRequest) -> Response:
    """Prepare to succeed the leader that resigns."""
    error = _leader_request_error(q, request)
    if error is not ErrorCode.NONE:
        return refusal(request, error, q.view)
    news.learn(q, request.epoch, request.leader_id, request.endpoints)
    if isinstance(q.state, Follower) and q.election.leader_id == request.leader_id:
        q.state.fetch_deadline_ms = q.now_ms + _backoff_ms(q, request.preferred)
        q.state.has_fetched = False  # The leader of this epoch has gone: pre-votes may be granted.
    return QuorumEpochResponse(ErrorCode.NONE, *q.view)


def _leader_request_error(q: QuorumState, request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> ErrorCode:
    if request.epoch < q.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    is_own = request.leader_id == q.config.node_id
    if request.leader_id < 0 or is_own or news.contradicts(q, request.epoch, request.leader_id):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _backoff_ms(q: QuorumState, preferred: Sequence[ReplicaKey]) -> int:
    """How long this voter waits: nothing as the best successor, then exponentially more, at most the maximum."""
    position = next((i for i, key in enumerate(preferred) if key.names(q.config.key)), len(preferred))
    longest_ms = q.config.election_backoff_max_ms
    if position == 0 and preferred:
        return 0
    if position >= len(preferred):
        return longest_ms
    shortest_ms = longest_ms >> (len(preferred) - 1)
    return min(longest_ms, shortest_ms << (position - 1))


def on_response(q: QuorumState, node_id: int, response: QuorumEpochResponse) -> bool:
    """A voter knows that this leader begins or has resigned."""
    done = news.learn_from_response(q, response)
    if done is not None:
        return done
    if isinstance(q.state, Resigned):
        q.state.unacknowledged.discard(node_id)
    return True


def on_disconnected(q: QuorumState, node_id: int) -> None:
    """The leader's process has probably ended: ask for pre-votes soon, instead of after the fetch timeout.

    All voters notice it at the same time. They stand one after the other: if two stood at once, each would vote for
    itself, and the next attempt would begin only after the election timeout. If the leader is alive and only this
    connection broke, the other voters hear it and reject the pre-vote.
    """
    state = q.state
    if isinstance(state, Follower) and node_id == q.election.leader_id:
        state.has_fetched = False
        soon_ms = q.now_ms + 1 + _rank(q, node_id) * SUCCESSION_MS
        state.fetch_deadline_ms = min(state.fetch_deadline_ms, soon_ms)


def _rank(q: QuorumState, leader_id: int) -> int:
    """How many voters stand before this one: those with the next ids after the leader's, in a circle."""
    successors = sorted(q.voters.last.ids - {leader_id}, key=lambda node_id: (node_id < leader_id, node_id))
    own = q.config.node_id
    return successors.index(own) if own in successors else len(successors)
