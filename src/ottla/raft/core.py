"""One replica of the quorum's log: events in, effects out. KIP-595, KIP-630, KIP-853, KIP-996.

    core = RaftCore(config, election, random)
    effects = core.step(Started(...), now_ms)  # first; then any event, and `Ticked()` once `deadline_ms` has passed

The caller executes the effects in their order, see `events`. After each event the core polls its role: it checks the
timers and sends what is due. A request that cannot be sent now (one is in flight, or the last one failed) is sent at a
later poll. Thus no request is queued, and each describes the present state.

Reading order: `roles` (the table of states), `state`, `news`, `voting`, `leading`, `following`, `voter_changes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.raft import following, leading, quorum_epochs, snapshots, voter_changes, voting
from ottla.raft import messages as m
from ottla.raft.config import QuorumConfig
from ottla.raft.connections import FOREVER
from ottla.raft.control import KRaftVersion
from ottla.raft.describe import QuorumDescription, describe
from ottla.raft.events import (
    Appended,
    Disconnected,
    Effect,
    Event,
    Failed,
    Flushed,
    Persist,
    Received,
    ResignRequested,
    Responded,
    ShutdownRequested,
    SnapshotLoaded,
    SnapshotRejected,
    SnapshotsChanged,
    Started,
    Ticked,
    UpgradeRequested,
)
from ottla.raft.leader import Leader
from ottla.raft.roles import Candidate, Follower, Prospective, Resigned, Role, Unattached
from ottla.raft.starting import start
from ottla.raft.state import QuorumState, RandomSource
from ottla.raft.values import Election, Endpoints, LogEnd
from ottla.raft.voters import VoterSet

MOST_TRANSITIONS = 8


class RaftCore:
    """One replica. Read its properties; change it only through `step`."""

    def __init__(self, config: QuorumConfig, election: Election, random: RandomSource) -> None:
        self._q = QuorumState(config, election, random)
        self._persisted = election
        self._deadline_ms = FOREVER
        self._is_started = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            Ticked: lambda _event: None,
            Appended: self._on_appended,
            Flushed: self._on_flushed,
            SnapshotsChanged: lambda event: self._q.log.set_snapshots(event.snapshots, event.start_offset),
            SnapshotLoaded: lambda event: following.on_snapshot_loaded(self._q, event),
            SnapshotRejected: lambda event: following.on_snapshot_rejected(self._q, event),
            Received: self._on_received,
            Responded: self._on_responded,
            Failed: self._on_failed,
            Disconnected: self._on_disconnected,
            UpgradeRequested: lambda event: voter_changes.on_upgrade(self._q, event),
            ResignRequested: self._on_resign_requested,
            ShutdownRequested: self._on_shutdown_requested,
        }

    # -- what others read ----------------------------------------------------------------------------------------

    @property
    def config(self) -> QuorumConfig:
        return self._q.config

    @property
    def node_id(self) -> int:
        return self._q.config.node_id

    @property
    def role(self) -> Role:
        return self._q.role

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads, so that it may append its own records."""
        return self.role is Role.LEADER

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the latest voter set of its log."""
        return self._q.is_voter

    @property
    def election(self) -> Election:
        return self._q.election

    @property
    def epoch(self) -> int:
        return self._q.epoch

    @property
    def leader(self) -> tuple[int, Endpoints] | None:
        """The leader of the present epoch, and where other nodes reach it; None if it is not known."""
        leader_id = self._q.election.leader_id
        return (leader_id, self._q.leader_endpoints) if self._q.election.has_leader else None

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; -1 if this is not known yet."""
        return self._q.high_watermark

    @property
    def end(self) -> LogEnd:
        """The end of the log."""
        return self._q.log.end

    @property
    def flushed_offset(self) -> int:
        return self._q.log.flushed_offset

    @property
    def is_flushing(self) -> bool:
        """Whether a flush was requested and is not reported yet."""
        return self._q.log.is_flushing

    @property
    def voters(self) -> VoterSet:
        """The latest voter set in the log, committed or not."""
        return self._q.voters.last

    @property
    def kraft_version(self) -> int:
        """The latest level of kraft.version in the log, committed or not."""
        return self._q.kraft_version.last

    @property
    def deadline_ms(self) -> int:
        """When `step(Ticked(), ...)` is due, on the monotonic clock."""
        return self._deadline_ms

    @property
    def may_stop(self) -> bool:
        """After `ShutdownRequested`: whether the other voters have another leader, or need none of this node."""
        q = self._q
        has_other_leader = q.election.has_leader and q.election.leader_id != self.node_id
        return not q.is_voter or has_other_leader or self.is_last_voter

    @property
    def is_last_voter(self) -> bool:
        """Whether no majority can elect another leader: too many of the other voters have evidently ended."""
        q = self._q
        voters = q.voters.last.ids
        return len(voters - q.connections.gone - {self.node_id}) < len(voters) // 2 + 1

    def snapshot_controls(self, end_offset: int) -> tuple[KRaftVersion, VoterSet | None]:
        """Return the control values of a snapshot that ends at `end_offset`; voters only if the log has them."""
        version = self._q.kraft_version.at(end_offset - 1)
        has_voters = self._q.voters.last_offset is not None
        return KRaftVersion(version), self._q.voters.at(end_offset - 1) if has_voters else None

    def describe(self, now_ms: int, wall_ms: int) -> QuorumDescription | None:
        """The leader's view of the quorum, for DescribeQuorum; None if this replica is not the leader."""
        return describe(self._q, now_ms, wall_ms)

    # -- events --------------------------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns the effects in the order in which the caller must execute them.

        Raises QuorumError if another node breaks the protocol: the caller must stop the node, with its log as it is.
        """
        q = self._q
        q.now_ms = max(q.now_ms, now_ms)
        q.log.is_appending = isinstance(event, Appended) and not event.is_last
        self._handlers[type(event)](event)
        if self._is_started and not q.log.is_appending:
            self._poll()
        effects, q.effects = q.effects, []
        messages, q.messages = q.messages, []
        if q.election != self._persisted:
            # One write stores all changes of the election in this step, because no message was sent in between.
            self._persisted = q.election
            effects.insert(0, Persist(q.election, tuple(sorted(q.voters.last.ids)), q.kraft_version.last))
        return [*effects, *messages]

    def _on_started(self, event: Started) -> None:
        start(self._q, event)
        self._is_started = True

    def _on_appended(self, event: Appended) -> None:
        q = self._q
        if event.end_offset <= q.log.end.offset:
            return
        assert event.epoch <= q.epoch, f"records of epoch {event.epoch} in epoch {q.epoch}"
        q.log.append(event.end_offset, event.epoch)
        q.learn_controls(event.controls)
        if event.is_last:
            q.flush()
        state = q.state
        if isinstance(state, Leader):
            for offset, record in event.controls:
                if isinstance(record, KRaftVersion):
                    voter_changes.on_version_appended(state, offset)
                else:
                    state.set_voters(record)
                    voter_changes.on_voters_appended(state, offset)
            leading.on_log_changed(q, state)
        elif isinstance(state, Follower):
            following.on_log_changed(q, state)

    def _on_flushed(self, event: Flushed) -> None:
        q = self._q
        q.log.is_flushing = False
        q.log.flush(event.end_offset)
        if isinstance(q.state, Leader):
            leading.on_log_changed(q, q.state)
        elif isinstance(q.state, Follower):
            following.on_log_changed(q, q.state)
        q.flush()

    def _on_resign_requested(self, event: ResignRequested) -> None:
        if isinstance(self._q.state, Leader) and event.epoch == self._q.epoch:
            self._q.state.must_resign = True

    def _on_shutdown_requested(self, _event: ShutdownRequested) -> None:
        self._q.is_stopping = True
        self._q.connections.gone.clear()  # They may have returned since.

    def _on_disconnected(self, event: Disconnected) -> None:
        self._q.connections.gone.add(event.node_id)
        quorum_epochs.on_disconnected(self._q, event.node_id)

    # -- requests and responses ----------------------------------------------------------------------------------

    def _on_received(self, event: Received) -> None:
        q, request, token = self._q, event.request, event.token
        if not isinstance(request, m.ApiVersionsRequest):
            own, theirs = q.config.cluster_id, request.cluster_id
            if own is not None and theirs is not None and own != theirs:
                message = f'The given id "{theirs}" doesn\'t match the cluster id "{own}"'
                q.refuse(token, request, ErrorCode.INCONSISTENT_CLUSTER_ID, message)
                return
        match request:
            case m.VoteRequest():
                q.respond(token, voting.on_vote_request(q, request))
            case m.BeginQuorumEpochRequest():
                q.respond(token, quorum_epochs.on_begin_request(q, request))
            case m.EndQuorumEpochRequest():
                q.respond(token, quorum_epochs.on_end_request(q, request))
            case m.FetchRequest():
                leading.on_fetch_request(q, token, request)
            case m.FetchSnapshotRequest():
                q.respond(token, snapshots.on_fetch_snapshot_request(q, request))
            case m.ApiVersionsRequest():
                q.respond(token, m.ApiVersionsResponse(kraft_versions=q.config.kraft_versions))
            case _:
                voter_changes.on_request(q, token, request)

    def _on_responded(self, event: Responded) -> None:
        q = self._q
        found = q.connections.find(event.request_id)
        if found is None:
            return  # The role has changed, or the request timed out.
        node_id, request = found
        q.connections.gone.discard(node_id)
        succeeded = self._handle_response(event.request_id, node_id, request, event.response)
        is_denied = event.response.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        q.connections.done(event.request_id, q.now_ms, succeeded=succeeded, is_denied=is_denied)

    def _handle_response(self, request_id: int, node_id: int, request: m.Request, response: m.Response) -> bool:
        q = self._q
        match request, response:
            case m.VoteRequest(), m.VoteResponse():
                return voting.on_vote_response(q, node_id, request, response)
            case m.FetchRequest(), m.FetchResponse():
                return following.on_fetch_response(q, request, response)
            case m.FetchSnapshotRequest(), m.FetchSnapshotResponse():
                return following.on_fetch_snapshot_response(q, response)
            case m.BeginQuorumEpochRequest() | m.EndQuorumEpochRequest(), m.QuorumEpochResponse():
                return quorum_epochs.on_response(q, node_id, response)
            case m.ApiVersionsRequest(), m.ApiVersionsResponse():
                return voter_changes.on_versions(q, request_id, response)
            case m.UpdateVoterRequest(), m.UpdateVoterResponse():
                return following.on_update_voter_response(q, response)
            case _:
                return response.error in following.VOTER_REQUEST_DONE

    def _on_failed(self, event: Failed) -> None:
        q = self._q
        found = q.connections.find(event.request_id)
        if found is not None:
            q.connections.done(event.request_id, q.now_ms, succeeded=False)
            if isinstance(found[1], m.ApiVersionsRequest):
                voter_changes.on_versions_failed(q, event.request_id)

    # -- timers --------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Let the role do what is due, until it does not change any more."""
        q = self._q
        timed_out = q.connections.prune(q.now_ms)
        for _ in range(MOST_TRANSITIONS):
            state = q.state
            deadline_ms = self._poll_role(state, timed_out)
            if q.state is state:
                self._deadline_ms = min(deadline_ms, q.connections.deadline_ms)
                return
        raise AssertionError(f"node {self.node_id} does not settle in a role, now {q.role.value}")

    def _poll_role(self, state: object, timed_out: frozenset[int]) -> int:
        q = self._q
        match state:
            case Leader():
                return leading.poll_leader(q, state)
            case Follower():
                return following.poll_follower(q, state, timed_out)
            case Unattached():
                return following.poll_unattached(q, state)
            case Prospective() | Candidate():
                return voting.poll_nominee(q, state)
            case Resigned():
                return leading.poll_resigned(q, state)
        raise AssertionError(f"unknown state {state}")

    # -- self-check ----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        q = self._q
        own, election = q.config.node_id, q.election
        assert q.log.flushed_offset <= q.log.end.offset, "flushed more than was appended"
        assert q.high_watermark <= q.log.end.offset, "committed beyond the end of the log"
        assert q.log.end.epoch <= q.epoch, "records of a future epoch"
        leads = q.role in (Role.LEADER, Role.RESIGNED)
        assert leads == (election.leader_id == own), "leader and election differ"
        if q.role is Role.CANDIDATE:
            assert election.voted.names(q.config.key), "stands without its own vote"
        if q.role is Role.FOLLOWER:
            assert election.has_leader, "follows no leader"
