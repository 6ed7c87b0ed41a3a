"""The state that all parts of a replica share, and its transitions between roles.

The parts (`voting`, `leading`, `following`, `voter_changes`) are functions on a `QuorumState`. They change it only
through the methods here, which check the table of transitions, and they add effects. `step` in `core` collects the
effects: a changed election is stored first, and messages are sent last.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ottla.common.errors import ErrorCode
from ottla.raft.ballot import Ballot
from ottla.raft.config import QuorumConfig
from ottla.raft.connections import FOREVER, Connections
from ottla.raft.control import KRaftVersion
from ottla.raft.events import Commit, Controls, Effect, Flush, Respond, Send, Token
from ottla.raft.leader import Leader
from ottla.raft.log_state import LogState
from ottla.raft.messages import Request, Response, VoterChangeResponse
from ottla.raft.responses import LeaderView, refusal
from ottla.raft.roles import TRANSITIONS, Candidate, Follower, Prospective, Resigned, Role, Unattached
from ottla.raft.values import NO_NODE, NO_REPLICA, Election, Endpoints, Node, ReplicaKey, address_of
from ottla.raft.voters import STATIC_VOTERS, History, VoterSet

State: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned


class QuorumError(Exception):
    """Another node breaks the protocol so that going on could lose committed records. The caller must stop the node."""


class RandomSource(Protocol):
    """The source of the jitter in election timeouts, and of the choice among bootstrap servers."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to `stop` - 1."""
        ...


class QuorumState:
    """One replica. `now_ms` is the time of the present step, on the monotonic clock."""

    def __init__(self, config: QuorumConfig, election: Election, random: RandomSource) -> None:
        self.config = config
        self.election = election
        self.leader_endpoints: Endpoints = ()
        self.state: State = Unattached()
        self.log = LogState()
        self.voters: History[VoterSet] = History(config.static_voters)
        self.kraft_version: History[int] = History(STATIC_VOTERS)
        self.high_watermark = -1
        self.connections = Connections(config.request_timeout_ms, config.retry_backoff_ms)
        self.is_stopping = False
        self.lost_elections = 0
        """The elections that this candidate lost since it last knew a leader."""
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.messages: list[Send | Respond] = []
        self.random = random

    # -- what this replica is ------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        role: Role = self.state.role
        return role

    @property
    def epoch(self) -> int:
        return self.election.epoch

    @property
    def is_voter(self) -> bool:
        """Whether the latest voter set in the log, committed or not, has this replica."""
        return self.voters.last.is_voter(self.config.key)

    @property
    def may_stand(self) -> bool:
        """Whether this replica stands for election: a voter, or one that an uncommitted record removes.

        The removed replica may be the only one with that record, and then the longest log, so that no other voter can
        win. It does not count its own vote. After the commit of the record it is an observer like any other.
        """
        if self.is_voter:
            return True
        offset = self.voters.last_offset
        is_committed = offset is not None and offset < self.high_watermark
        return not is_committed and self.voters.previous.is_voter(self.config.key)

    @property
    def own_endpoints(self) -> Endpoints:
        """Where other nodes reach this one."""
        return self.config.endpoints or self.voters.last.endpoints(self.config.node_id)

    def leader_error(self, epoch: int) -> ErrorCode:
        """Why this replica cannot answer a request for the leader of `epoch`; NONE if it can."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.state, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if self.is_stopping else ErrorCode.NONE

    @property
    def must_flush(self) -> bool:
        """Whether a fetch of this replica must mean that its log is on disk."""
        return self.may_stand or self.config.can_become_voter

    @property
    def held_offset(self) -> int:
        """The offset up to which this replica has the log, in the sense that counts for a commit."""
        return self.log.flushed_offset if self.must_flush else self.log.end.offset

    # -- transitions ---------------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, leader_id: int = NO_NODE) -> None:
        """Enter a higher epoch, or give up a pre-vote in the present one. A running election timeout goes on."""
        state = self.state
        deadline_ms = self.random_election_deadline_ms()
        if not self.may_stand:
            deadline_ms = FOREVER
        elif isinstance(state, Unattached | Candidate | Resigned) or (
            isinstance(state, Prospective) and not state.ballot.is_lost
        ):
            deadline_ms = min(state.election_deadline_ms, deadline_ms)
        voted = self.election.voted if epoch == self.epoch else NO_REPLICA
        if leader_id == self.config.node_id:
            # This replica led the epoch, and its quorum-state file was lost: it must not vote for another there.
            leader_id, voted = NO_NODE, self.config.key
        self._enter(Unattached(deadline_ms), Election(epoch, leader_id, voted), ())

    def become_prospective(self) -> None:
        """Ask for pre-votes. The epoch and its leader, if known, stay."""
        ballot = Ballot(self.voters.last, self.config.node_id)
        state = Prospective(ballot, self.random_election_deadline_ms())
        self._enter(state, self.election, self.leader_endpoints)

    def become_candidate(self) -> None:
        """Vote for itself in the next epoch."""
        ballot = Ballot(self.voters.last, self.config.node_id)
        election = Election(self.epoch + 1, NO_NODE, self.config.key)
        self._enter(Candidate(ballot, self.random_election_deadline_ms()), election, ())

    def become_leader(self, leader: Leader) -> None:
        """Lead the epoch of the won election. A leader's file names no vote, as Kafka's."""
        self.lost_elections = 0
        self._enter(leader, Election(self.epoch, self.config.node_id), self.own_endpoints)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints) -> None:
        """Follow the leader of an epoch, without an answer from it so far."""
        self.lost_elections = 0
        voted = self.election.voted if epoch == self.epoch else NO_REPLICA
        now_ms, timeout_ms = self.now_ms, self.config.fetch_timeout_ms
        state = Follower(now_ms + timeout_ms, now_ms + 2 * timeout_ms)
        self._enter(state, Election(epoch, leader_id, voted), endpoints)

    def become_resigned(self, preferred: tuple[ReplicaKey, ...]) -> None:
        """Stop leading, and remember that this epoch was led by this replica."""
        others = set(self.voters.last.ids) - {self.config.node_id}
        state = Resigned(self.random_election_deadline_ms(), others, preferred)
        self._enter(state, Election(self.epoch, self.config.node_id), self.own_endpoints)

    def add_vote(self, candidate: ReplicaKey) -> None:
        """Vote for a candidate of this epoch. The vote is on disk before the response is sent."""
        self.election = self.election._replace(voted=candidate)
        deadline_ms = self.random_election_deadline_ms()
        if isinstance(self.state, Prospective):
            self.state = Prospective(Ballot(self.voters.last, self.config.node_id), deadline_ms)
        else:
            self.state = Unattached(deadline_ms if self.may_stand else FOREVER)

    def _enter(self, state: State, election: Election, endpoints: Endpoints) -> None:
        assert state.role in TRANSITIONS[self.role], f"{self.role} cannot become {state.role}"
        assert election.epoch >= self.epoch, f"epoch {election.epoch} follows {self.epoch}"
        left = self.state
        self.state, self.election, self.leader_endpoints = state, election, endpoints
        self.connections.reset()
        if isinstance(left, Leader):
            self._dismiss(left)

    def _dismiss(self, leader: Leader) -> None:
        """Answer the requests that wait for this leader."""
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for parked in leader.parked.values():
            self.refuse(parked.token, parked.request, error)
        if leader.change is not None and not leader.change.is_answered:
            self.refuse(leader.change.token, leader.change.request, error)
        if leader.upgrade is not None:
            self.respond(leader.upgrade.token, VoterChangeResponse(error))

    def random_election_deadline_ms(self) -> int:
        """When an election that begins now has failed: after one to two election timeouts."""
        timeout_ms = self.config.election_timeout_ms
        return self.now_ms + timeout_ms + (self.random.randrange(timeout_ms) if timeout_ms else 0)

    # -- the log -------------------------------------------------------------------------------------------------

    def learn_controls(self, controls: Controls) -> None:
        """Take over versions and voters from records that were appended or loaded."""
        for offset, record in controls:
            if isinstance(record, KRaftVersion):
                self.kraft_version.add(offset, record.level)
            else:
                self.voters.add(offset, record)

    def truncate(self, offset: int) -> None:
        """Forget the records from `offset` on, and what they said about the voters."""
        self.log.truncate(offset)
        self.voters.truncate_from(offset)
        self.kraft_version.truncate_from(offset)

    def flush(self) -> None:
        """Request a flush of unflushed records, unless one is running. Observers leave that to the system."""
        if self.must_flush and not self.log.is_flushing and self.log.flushed_offset < self.log.end.offset:
            self.log.is_flushing = True
            self.effects.append(Flush(self.log.end.offset))

    def commit(self, high_watermark: int) -> None:
        """Advance the high watermark; it never decreases."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.effects.append(Commit(high_watermark))

    # -- messages ------------------------------------------------------------------------------------------------

    def send(self, node: Node, request: Request) -> bool:
        """Send a request, unless another one to this node is in flight, or the last one just failed."""
        if not self.connections.is_ready(node.node_id):
            return False
        request_id = self.connections.sent(node.node_id, request, self.now_ms)
        self.messages.append(Send(request_id, node, request))
        return True

    def send_to_voter(self, node_id: int, request: Request) -> bool:
        """Send a request to a voter."""
        node = self.voters.last.node(node_id, self.config.listener)
        return node is not None and self.send(node, request)

    def leader_node(self) -> Node | None:
        """Where the leader is reached."""
        endpoint = address_of(self.leader_endpoints, self.config.listener)
        return Node(self.election.leader_id, endpoint.host, endpoint.port) if endpoint is not None else None

    @property
    def view(self) -> LeaderView:
        """Return this replica's view of the leader, for others."""
        return LeaderView(self.epoch, self.election.leader_id, self.leader_endpoints)

    def refuse(self, token: Token, request: Request, error: ErrorCode, message: str | None = None) -> None:
        """Answer a request with an error, or without a result."""
        self.respond(token, refusal(request, error, self.view, message))

    def respond(self, token: Token, response: Response) -> None:
        """Answer a request."""
        self.messages.append(Respond(token, response))
