"""The first state of a replica after a start: what its quorum-state file and its log say. KIP-595."""

from __future__ import annotations

from ottla.raft import voting
from ottla.raft.ballot import Ballot
from ottla.raft.connections import FOREVER
from ottla.raft.events import Started
from ottla.raft.roles import Candidate, Follower, Resigned, Unattached
from ottla.raft.state import QuorumState
from ottla.raft.values import Election


def start(q: QuorumState, event: Started) -> None:
    """Enter the role in which the replica was, except that a leader has resigned: its epoch has no leader any more."""
    q.log.load(event.start_offset, event.end, event.flushed_offset, event.epoch_starts)
    q.log.set_snapshots(event.snapshots, event.start_offset)
    q.learn_controls(event.controls)
    if q.election.epoch < event.end.epoch:
        # The quorum-state file was lost. The epoch of the last record is a lower bound of the replica's epoch.
        q.election = Election(event.end.epoch)
    election, config, now_ms = q.election, q.config, q.now_ms
    deadline_ms = q.random_election_deadline_ms()
    endpoints = q.voters.last.endpoints(election.leader_id) if election.has_leader else ()
    if election.leader_id == config.node_id:
        q.state = Resigned(deadline_ms, set(q.voters.last.ids) - {config.node_id})
        q.leader_endpoints = q.own_endpoints
    elif election.voted.names(config.key) and election.has_voted and q.may_stand:
        q.state = Candidate(Ballot(q.voters.last, config.node_id), deadline_ms)
    elif endpoints:
        q.leader_endpoints = endpoints
        q.state = Follower(now_ms + config.fetch_timeout_ms, now_ms + 2 * config.fetch_timeout_ms)
    else:
        q.state = Unattached(deadline_ms if q.may_stand else FOREVER)
    q.flush()
    if isinstance(q.state, Candidate):
        voting.advance(q)
    elif q.voters.last.is_only_voter(config.key):
        voting.ask_for_pre_votes(q)
