"""The leader: its first records, the fetches of the other replicas, the high watermark, and its end. KIP-595.

A record is committed when the disks of a majority of the voters have it, and a record of the leader's own epoch with
it. Without the second condition a record of an older epoch could be counted as committed although a voter without it
can still win an election (Raft, figure 8).
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft import voter_changes
from ottla.raft.ballot import Ballot
from ottla.raft.connections import FOREVER
from ottla.raft.control import ControlRecord, KRaftVersion, LeaderChange
from ottla.raft.events import AppendControl, Token
from ottla.raft.leader import Leader, ParkedFetch, is_anonymous
from ottla.raft.log_state import Diverged, NeedsSnapshot
from ottla.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchResponse
from ottla.raft.roles import Resigned
from ottla.raft.state import QuorumState
from ottla.raft.voters import DYNAMIC_VOTERS

BOOTSTRAP_OFFSET = -1
MAX_PARKED = 1000


def lead(q: QuorumState, ballot: Ballot) -> None:
    """Begin to lead the epoch of a won election: append its first records, and announce it."""
    timeout_ms = q.config.fetch_timeout_ms
    check_ms = timeout_ms * 3 // 2
    leader = Leader(q.config.key, q.log.end.offset, check_ms, q.now_ms + check_ms, q.now_ms)
    leader.set_voters(q.voters.last)
    if q.kraft_version.last < DYNAMIC_VOTERS:
        leader.reported_voters = q.voters.last.update(q.config.voter, any_directory=True)
    if q.log.flushed_offset > 0:
        leader.replica(q.config.key).end_offset = q.log.flushed_offset
    q.become_leader(leader)
    voters = tuple(sorted(q.voters.last.ids))
    change = LeaderChange(q.config.node_id, voters, tuple(sorted(ballot.granted & q.voters.last.ids)))
    q.effects.append(AppendControl(q.epoch, (change, *_own_voter_records(q))))


def _own_voter_records(q: QuorumState) -> tuple[ControlRecord, ...]:
    """The voters again, if they are only in this node's bootstrap snapshot or have old facts about this node."""
    voters, level = q.voters.last, q.kraft_version.last
    if level < DYNAMIC_VOTERS or not q.config.endpoints:
        return ()
    if q.voters.last_offset != BOOTSTRAP_OFFSET and not voters.needs_update(q.config.voter):
        return ()
    updated = voters.update(q.config.voter)
    return () if updated is None else (KRaftVersion(level), updated)


# -- the log -------------------------------------------------------------------------------------------------------


def on_log_changed(q: QuorumState, leader: Leader) -> None:
    """Records were appended or flushed: count them, and answer fetches that wait for them."""
    leader.replica(leader.key).end_offset = q.log.flushed_offset
    advance(q, leader)
    _answer_parked(q, leader)


def advance(q: QuorumState, leader: Leader) -> None:
    """Commit what a majority has on disk."""
    agreed = leader.agreed_offset()
    if agreed > leader.high_watermark and agreed > leader.epoch_start_offset:
        leader.high_watermark = agreed
        q.commit(agreed)
        voter_changes.on_commit(q, leader)


# -- fetches -------------------------------------------------------------------------------------------------------


def on_fetch_request(q: QuorumState, token: Token, request: FetchRequest) -> None:
    """Answer a replica's fetch at once, or park it until there is something new.

    A fetch acknowledges the replica's log up to its offset, if that log is a prefix of this one (`LogState.check`).
    """
    end = request.end
    if request.max_wait_ms < 0 or end.offset < 0 or not 0 <= end.epoch <= request.epoch:
        q.refuse(token, request, ErrorCode.INVALID_REQUEST)
        return
    leader = q.state
    error = q.leader_error(request.epoch)
    if error is not ErrorCode.NONE or not isinstance(leader, Leader):
        q.refuse(token, request, error)
        return
    if request.replica.node_id == q.config.node_id:
        q.refuse(token, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        return
    if q.log.check(end) is None and not is_anonymous(request.replica):
        leader.replica(request.replica).fetched(end.offset, q.log.end.offset, q.now_ms)
        leader.note_fetch(request.replica, q.now_ms)
        if leader.is_voter(request.replica):
            advance(q, leader)
    response = fetch_response(q, leader, request)
    if request.max_wait_ms == 0 or _is_news(request, response):
        q.respond(token, response)
    else:
        _park(q, leader, ParkedFetch(token, request, q.now_ms + request.max_wait_ms))
    _answer_parked(q, leader)


def fetch_response(q: QuorumState, leader: Leader, request: FetchRequest) -> FetchResponse:
    """Records from the request's offset on, or why the replica cannot have them."""
    found = q.log.check(request.end)
    view = (ErrorCode.NONE, *q.view, leader.high_watermark, q.log.start_offset)
    if isinstance(found, Diverged):
        return FetchResponse(*view, diverging=found.end)
    if isinstance(found, NeedsSnapshot):
        return FetchResponse(*view, snapshot=found.snapshot)
    return FetchResponse(*view, has_records=request.end.offset < q.log.end.offset)


def _is_news(request: FetchRequest, response: FetchResponse) -> bool:
    return (
        response.has_records
        or response.diverging is not None
        or response.snapshot is not None
        or request.high_watermark < response.high_watermark
    )


def _park(q: QuorumState, leader: Leader, fetch: ParkedFetch) -> None:
    """Park a fetch. An older one of the same replica is answered at once, and the oldest ones if there are too many."""
    replica = fetch.request.replica
    for token, other in list(leader.parked.items()):
        same = other.request.replica == replica and not is_anonymous(replica)
        if same or len(leader.parked) >= MAX_PARKED:
            del leader.parked[token]
            q.respond(token, fetch_response(q, leader, other.request))
    leader.parked[fetch.token] = fetch


def _answer_parked(q: QuorumState, leader: Leader) -> None:
    for token, fetch in list(leader.parked.items()):
        response = fetch_response(q, leader, fetch.request)
        if q.now_ms >= fetch.deadline_ms or _is_news(fetch.request, response):
            del leader.parked[token]
            q.respond(token, response)


# -- timers --------------------------------------------------------------------------------------------------------


def poll_leader(q: QuorumState, leader: Leader) -> int:
    """Resign if no majority fetches, announce the epoch, expire what waits. Returns the next deadline."""
    if q.is_stopping or leader.must_resign or q.now_ms >= leader.check_deadline_ms():
        q.become_resigned(leader.successors())
        return q.now_ms
    change_ms = voter_changes.expire(q, leader)
    if q.now_ms >= leader.begin_epoch_deadline_ms:
        _announce(q, leader)
    _answer_parked(q, leader)
    parked_ms = min((fetch.deadline_ms for fetch in leader.parked.values()), default=FOREVER)
    begin_ms = leader.begin_epoch_deadline_ms if len(leader.voters.keys() - {q.config.node_id}) else FOREVER
    return min(leader.check_deadline_ms(), begin_ms, change_ms, parked_ms)


def _announce(q: QuorumState, leader: Leader) -> None:
    """Send BeginQuorumEpoch to the voters that do not fetch, e.g. because they do not know this leader."""
    period_ms = q.config.fetch_timeout_ms // 2
    for voter in leader.silent_voters(period_ms, q.now_ms):
        request = BeginQuorumEpochRequest(q.config.cluster_id, voter, q.config.node_id, q.epoch, q.own_endpoints)
        q.send_to_voter(voter.node_id, request)
    leader.begin_epoch_deadline_ms = q.now_ms + max(1, period_ms)


def poll_resigned(q: QuorumState, state: Resigned) -> int:
    """Notify the voters that this leader resigned; at the timeout, leave the epoch. Returns the next deadline."""
    if q.now_ms >= state.election_deadline_ms and not q.is_stopping:
        q.become_unattached(q.epoch + 1)
        return q.now_ms
    for voter in sorted(state.unacknowledged):
        request = EndQuorumEpochRequest(
            q.config.cluster_id, q.config.node_id, q.epoch, state.preferred, q.own_endpoints
        )
        q.send_to_voter(voter, request)
    return FOREVER if q.is_stopping else state.election_deadline_ms
