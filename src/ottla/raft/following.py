"""The follower and the observer: fetching records and snapshots, truncation, and the search for a leader. KIP-595.

One fetch is in flight. A voter, and a controller that can become one, fetches on only when everything fetched is on
disk, since its fetch offset counts towards a commit.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.raft import news, voting
from ottla.raft.connections import FOREVER
from ottla.raft.events import (
    AppendFetched,
    AppendSnapshot,
    BeginSnapshot,
    LoadSnapshot,
    SnapshotLoaded,
    SnapshotRejected,
    Truncate,
)
from ottla.raft.messages import (
    AddVoterRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    UpdateVoterRequest,
    UpdateVoterResponse,
)
from ottla.raft.roles import Follower, SnapshotFetch, Unattached
from ottla.raft.state import QuorumError, QuorumState
from ottla.raft.values import LogEnd, Node, SnapshotId
from ottla.raft.voters import DYNAMIC_VOTERS

# -- fetching records ----------------------------------------------------------------------------------------------


def on_fetch_response(q: QuorumState, request: FetchRequest, response: FetchResponse) -> bool:
    """Append the records, truncate, or begin to fetch a snapshot."""
    done = news.learn_from_response(q, response)
    if done is not None:
        return done
    state = q.state
    if not isinstance(state, Follower) or response.leader_id != q.election.leader_id:
        return False
    _hear_leader(q, state)
    if request.end != q.log.end or q.log.is_flushing:
        return True  # The log has changed since. A flush must not run while its records are truncated.
    if response.diverging is not None:
        _truncate(q, response.diverging)
    elif response.snapshot is not None:
        _begin_snapshot(q, state, response.snapshot)
    else:
        state.leader_high_watermark = max(state.leader_high_watermark, response.high_watermark)
        if response.has_records:
            q.log.is_appending = True
            q.effects.append(AppendFetched())
        on_log_changed(q, state)
    return True


def on_log_changed(q: QuorumState, state: Follower) -> None:
    """Commit what the leader has committed, as far as this replica has it on disk."""
    q.commit(min(state.leader_high_watermark, q.held_offset))


def _hear_leader(q: QuorumState, state: Follower) -> None:
    state.has_fetched = True
    state.fetch_deadline_ms = q.now_ms + q.config.fetch_timeout_ms


def _truncate(q: QuorumState, leader_end: LogEnd) -> None:
    """Remove the records that the leader does not have. Committed records are never among them."""
    offset = q.log.common_end(leader_end)
    if offset < q.high_watermark:
        raise QuorumError(
            f"The leader requests truncation to {offset}, below the high watermark {q.high_watermark}: it has lost"
            " committed records"
        )
    q.truncate(offset)
    q.effects.append(Truncate(offset))


# -- fetching a snapshot -------------------------------------------------------------------------------------------


def _begin_snapshot(q: QuorumState, state: Follower, snapshot: SnapshotId) -> None:
    """This log ends before the leader's log starts: the snapshot replaces it."""
    if snapshot.end_offset < q.high_watermark:
        raise QuorumError(
            f"The leader requests snapshot {snapshot}, below the high watermark {q.high_watermark}: it has lost"
            " committed records"
        )
    if q.log.end.is_behind(LogEnd(*snapshot)):
        state.fetching = SnapshotFetch(snapshot)
        q.effects.append(BeginSnapshot(snapshot))


def on_fetch_snapshot_response(q: QuorumState, response: FetchSnapshotResponse) -> bool:
    """Append a part of the snapshot. With the last part, replace the log."""
    if response.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        # The leader deleted the snapshot meanwhile. The next fetch names a newer one.
        if isinstance(q.state, Follower) and response.epoch == q.epoch:
            q.state.fetching = None
            return True
        return False
    done = news.learn_from_response(q, response)
    if done is not None:
        return done
    state = q.state
    if not isinstance(state, Follower) or response.leader_id != q.election.leader_id:
        return False
    _hear_leader(q, state)
    fetching = state.fetching
    expected = (fetching.snapshot, fetching.position) if fetching is not None else None
    if fetching is None or expected != (response.snapshot, response.position) or not response.length:
        state.fetching = None
        return False
    q.effects.append(AppendSnapshot(fetching.snapshot, fetching.position))
    fetching.position += response.length
    if fetching.position >= response.size:
        fetching.is_loading = True
        q.effects.append(LoadSnapshot(fetching.snapshot))
    return True


def on_snapshot_loaded(q: QuorumState, event: SnapshotLoaded) -> None:
    """The log is empty and starts at the end of the snapshot, whose records are committed."""
    q.log.start_at(event.snapshot, event.size)
    q.voters.clear()
    q.kraft_version.clear()
    q.learn_controls(event.controls)
    if isinstance(q.state, Follower):
        q.state.fetching = None
    q.commit(event.snapshot.end_offset)


def on_snapshot_rejected(q: QuorumState, event: SnapshotRejected) -> None:
    """Fetch on a moment later: the leader may send the snapshot whole, or a newer one.

    A voter waits for less than the time after which it misses its leader.
    """
    state = q.state
    if isinstance(state, Follower) and state.fetching is not None and state.fetching.snapshot == event.snapshot:
        state.fetching = None
        state.fetch_after_ms = q.now_ms + q.config.fetch_timeout_ms // 2


# -- timers --------------------------------------------------------------------------------------------------------


def poll_follower(q: QuorumState, state: Follower, timed_out: frozenset[int]) -> int:
    """Fetch on; a voter that misses its leader asks for pre-votes. Returns the next deadline."""
    may_stand = q.may_stand
    if may_stand and q.now_ms >= state.fetch_deadline_ms and not q.is_stopping:
        voting.ask_for_pre_votes(q)
        return q.now_ms
    leader = q.leader_node()
    if q.now_ms >= state.voter_check_deadline_ms and leader is not None and not q.is_stopping:
        request = _voter_request(q, state)
        if request is None or q.send(leader, request):
            state.voter_check_deadline_ms = q.now_ms + 2 * q.config.fetch_timeout_ms
    if leader is None or leader.node_id in timed_out or q.connections.is_pausing(leader.node_id):
        _fetch_from_bootstrap(q)
    elif not q.connections.is_any_in_flight and not q.log.is_flushing and _may_fetch(q, state):
        q.send(leader, _fetch_request(q, state))
    deadline_ms = state.fetch_deadline_ms if may_stand and not q.is_stopping else FOREVER
    if q.now_ms < state.fetch_after_ms:
        deadline_ms = min(deadline_ms, state.fetch_after_ms)
    return min(deadline_ms, max(state.voter_check_deadline_ms, q.now_ms + 1))


def _may_fetch(q: QuorumState, state: Follower) -> bool:
    if q.now_ms < state.fetch_after_ms:
        return False
    if state.fetching is not None:
        return not state.fetching.is_loading
    return q.held_offset == q.log.end.offset


def poll_unattached(q: QuorumState, state: Unattached) -> int:
    """Ask a bootstrap server for the leader; a voter stands for election at its timeout. Returns the next deadline."""
    if q.may_stand and state.election_deadline_ms == FOREVER:
        state.election_deadline_ms = q.random_election_deadline_ms()  # It became a voter by a truncation.
    if q.may_stand and q.now_ms >= state.election_deadline_ms and not q.is_stopping:
        voting.ask_for_pre_votes(q)
        return q.now_ms
    if not q.log.is_flushing and q.held_offset == q.log.end.offset:
        _fetch_from_bootstrap(q)
    return FOREVER if q.is_stopping else state.election_deadline_ms


def _fetch_from_bootstrap(q: QuorumState) -> None:
    """Fetch from any node that may know the leader: its response names it."""
    servers = _servers(q)
    if not servers or q.connections.is_any_in_flight:
        return
    node = q.connections.choose(servers, q.random.randrange(len(servers)))
    if node is not None:
        q.send(node, _fetch_request(q, None))


def _servers(q: QuorumState) -> tuple[Node, ...]:
    """The bootstrap servers; without them, and for an observer, also the voters of its log at other addresses.

    All bootstrap servers of an observer may have been removed from the voters. A leader knows how to reach a voter.
    """
    own = {(endpoint.host, endpoint.port) for endpoint in q.own_endpoints}
    servers: tuple[Node | None, ...] = q.config.bootstrap
    if not servers or not q.is_voter:
        voters = q.voters.last
        servers += tuple(voters.node(node_id, q.config.listener) for node_id in sorted(voters.ids))
    found: dict[tuple[str, int], Node] = {}
    for node in servers:
        if node is not None and node.node_id != q.config.node_id and (node.host, node.port) not in own:
            found.setdefault((node.host, node.port), node)
    return tuple(found.values())


def _fetch_request(q: QuorumState, state: Follower | None) -> FetchRequest | FetchSnapshotRequest:
    config = q.config
    if state is not None and state.fetching is not None:
        fetching = state.fetching
        return FetchSnapshotRequest(
            config.cluster_id,
            config.key,
            q.epoch,
            fetching.snapshot,
            fetching.position,
            config.fetch_snapshot_max_bytes,
        )
    return FetchRequest(
        config.cluster_id,
        config.key,
        q.epoch,
        q.log.end,
        q.high_watermark,
        config.fetch_max_wait_ms,
        config.fetch_max_bytes,
    )


# -- this replica among the voters ---------------------------------------------------------------------------------


def _voter_request(q: QuorumState, state: Follower) -> Request | None:
    """Return the request that reports this replica's voter data to the leader; None if the leader has it."""
    config, voters = q.config, q.voters.last
    is_dynamic = q.kraft_version.last >= DYNAMIC_VOTERS
    if q.is_voter:
        needs_update = voters.needs_update(config.voter) if is_dynamic else not state.has_updated_voter
        if not needs_update or not config.endpoints:
            return None
        return UpdateVoterRequest(config.cluster_id, q.epoch, config.key, config.endpoints, config.kraft_versions)
    if not (is_dynamic and config.can_become_voter and config.auto_join and config.endpoints):
        return None
    old = voters.get(config.node_id)
    if old is not None:  # The node got a new directory, as after the loss of a disk.
        return RemoveVoterRequest(config.cluster_id, old.key)
    return AddVoterRequest(
        config.cluster_id, config.request_timeout_ms, config.key, config.endpoints, ack_when_committed=False
    )


VOTER_REQUEST_DONE = frozenset(
    {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND}
)
"""Responses to AddRaftVoter and RemoveRaftVoter after which this replica waits for the next check."""


def on_update_voter_response(q: QuorumState, response: UpdateVoterResponse) -> bool:
    """The leader knows this replica's endpoints and versions, or does not support the request."""
    if response.error is not ErrorCode.UNSUPPORTED_VERSION:
        done = news.learn_from_response(q, response)
        if done is not None:
            return done
    if isinstance(q.state, Follower):
        q.state.has_updated_voter = True
        _hear_leader(q, q.state)
    return True
