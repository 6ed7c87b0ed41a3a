"""Elections: pre-votes, votes, and what an election timeout does. KIP-595, KIP-853, KIP-996.

A voter that misses its leader first asks for pre-votes, in its present epoch and without a change at the others. Only
with a majority it opens the next epoch, votes for itself and asks for votes. Thus a voter that only lost its own
connection does not end the epoch of a working leader: voters that hear the leader reject the pre-vote.

A vote is stored before it is sent. A voter gives one vote per epoch, and only to a log that has at least what its own
log has. Committed records are in the logs of a majority, so that a winner's log has all of them.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft import leading, news
from ottla.raft.ballot import may_vote
from ottla.raft.connections import FOREVER
from ottla.raft.messages import Response, VoteRequest, VoteResponse
from ottla.raft.responses import refusal
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from ottla.raft.state import QuorumState
from ottla.raft.values import ReplicaKey

FIRST_BACKOFF_MS = 100


def on_vote_request(q: QuorumState, request: VoteRequest) -> Response:
    """Answer a request for a vote or a pre-vote."""
    last_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if request.end.offset < 0 or not 0 <= request.end.epoch <= last_epoch:
        return refusal(request, ErrorCode.INVALID_REQUEST, q.view)
    if request.epoch < q.epoch:
        return refusal(request, ErrorCode.FENCED_LEADER_EPOCH, q.view)
    if request.candidate.node_id < 0 or request.candidate.node_id == q.config.node_id:
        return refusal(request, ErrorCode.INVALID_REQUEST, q.view)
    if request.epoch > q.epoch:
        q.become_unattached(request.epoch)
    if request.voter is not None and not request.voter.names(q.config.key):
        return refusal(request, ErrorCode.INVALID_VOTER_KEY, q.view)
    granted = _grants(q, request)
    if granted and not request.pre_vote and not q.election.has_voted:
        q.add_vote(request.candidate)
    return VoteResponse(ErrorCode.NONE, *q.view, granted)


def _grants(q: QuorumState, request: VoteRequest) -> bool:
    is_up_to_date = not request.end.is_behind(q.log.end)
    state = q.state
    if isinstance(state, Unattached | Prospective):
        return may_vote(q.election, request.candidate, is_up_to_date=is_up_to_date, pre_vote=request.pre_vote)
    if isinstance(state, Follower):
        return request.pre_vote and is_up_to_date and not state.has_fetched
    if isinstance(state, Candidate | Resigned):
        return request.pre_vote and is_up_to_date
    return False


def on_vote_response(q: QuorumState, node_id: int, request: VoteRequest, response: VoteResponse) -> bool:
    """Count a vote, and move on when the election is decided."""
    if response.error is ErrorCode.UNSUPPORTED_VERSION and request.pre_vote and isinstance(q.state, Prospective):
        stand(q)  # The voter does not know pre-votes.
        return True
    done = news.learn_from_response(q, response)
    if done is not None:
        return done
    state = q.state
    if not isinstance(state, Prospective | Candidate) or request.pre_vote != isinstance(state, Prospective):
        return True
    state.ballot.record(node_id, granted=response.granted)
    if state.ballot.is_won:
        advance(q)
    elif state.ballot.is_lost and isinstance(state, Prospective):
        give_up_pre_vote(q)
    elif isinstance(state, Candidate) and not response.granted:
        _back_off(q, state)
    return True


def _back_off(q: QuorumState, state: Candidate) -> None:
    """Let a candidate that a voter rejected stand again sooner than at its timeout.

    The votes are probably split, and the other candidate may still win meanwhile: the pause is random, and doubles up
    to `controller.quorum.election.backoff.max.ms` with each election that this voter loses.
    """
    if state.has_backed_off:
        return
    state.has_backed_off = True
    longest_ms = min(q.config.election_backoff_max_ms, FIRST_BACKOFF_MS << min(q.lost_elections, 16))
    q.lost_elections += 1
    soon_ms = q.now_ms + 1 + q.random.randrange(max(1, longest_ms))
    state.election_deadline_ms = min(state.election_deadline_ms, soon_ms)


def advance(q: QuorumState) -> None:
    """Enter the next role if the election of the present one is won."""
    if isinstance(q.state, Prospective) and q.state.ballot.is_won:
        stand(q)
    elif isinstance(q.state, Candidate) and q.state.ballot.is_won:
        leading.lead(q, q.state.ballot)


def ask_for_pre_votes(q: QuorumState) -> None:
    """Begin an election. A single voter wins it at once."""
    q.become_prospective()
    advance(q)


def stand(q: QuorumState) -> None:
    """Open the next epoch as a candidate. A single voter wins at once."""
    q.become_candidate()
    advance(q)


def give_up_pre_vote(q: QuorumState) -> None:
    """Return to the leader, if it is known; otherwise wait for the next election timeout."""
    if q.election.has_leader and q.leader_endpoints:
        q.become_follower(q.epoch, q.election.leader_id, q.leader_endpoints)
    else:
        q.become_unattached(q.epoch, q.election.leader_id)


def poll_nominee(q: QuorumState, state: Prospective | Candidate) -> int:
    """End the election at its timeout, or ask the voters that have not answered. Returns the next deadline."""
    if q.now_ms >= state.election_deadline_ms and not q.is_stopping:
        if isinstance(state, Candidate):
            ask_for_pre_votes(q)
        else:
            give_up_pre_vote(q)
        return q.now_ms
    if not state.ballot.is_lost:
        for voter in state.ballot.unanswered:
            q.send_to_voter(voter.node_id, _vote_request(q, voter, pre_vote=isinstance(state, Prospective)))
    return FOREVER if q.is_stopping else state.election_deadline_ms


def _vote_request(q: QuorumState, voter: ReplicaKey, *, pre_vote: bool) -> VoteRequest:
    # Only the end on disk: after a crash, this replica may retry in the same epoch, with the rest of its log.
    return VoteRequest(q.config.cluster_id, voter, q.config.key, q.epoch, q.log.flushed_end, pre_vote)
