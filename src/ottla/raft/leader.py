"""A leader's view of the replicas: how far each log is, who fetches, and what a majority has. KIP-595, KIP-836.

The leader counts its own log only as far as it is on disk. A follower's fetch offset counts because followers flush
before they fetch on. Thus a record is committed only when it is on the disks of a majority.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ottla.common.values import state, value
from ottla.raft import quorum
from ottla.raft.connections import FOREVER
from ottla.raft.events import Token
from ottla.raft.messages import UNKNOWN_HIGH_WATERMARK, FetchRequest
from ottla.raft.roles import Role
from ottla.raft.values import NO_NODE, Endpoints, ReplicaKey
from ottla.raft.voter_change import PendingChange, PendingUpgrade
from ottla.raft.voters import VoterSet

OBSERVER_SESSION_MS = 300_000
CAUGHT_UP_MS = 3_600_000
UNKNOWN = -1


@state
class Replica:
    """The progress of one replica. Times are on the monotonic clock, -1 if unknown."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_fetch_leader_end: int = UNKNOWN
    caught_up_ms: int = UNKNOWN

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """The replica fetched at `offset`: it has caught up now, or had at its last fetch."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.last_fetch_leader_end <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = offset


@value
class ParkedFetch:
    """A fetch that waits for records or for a higher high watermark."""

    token: Token
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    """The state of a leader. `voters` follows the latest voter set in the log, committed or not."""

    role: ClassVar = Role.LEADER
    key: ReplicaKey
    epoch_start_offset: int
    check_quorum_timeout_ms: int
    check_quorum_deadline_ms: int
    begin_epoch_deadline_ms: int
    voters: dict[int, Replica] = field(default_factory=dict)
    observers: dict[ReplicaKey, Replica] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)
    """Voters that have fetched since the last time a majority had."""
    high_watermark: int = UNKNOWN_HIGH_WATERMARK
    """Unknown until a record of this epoch is committed."""
    change: PendingChange | None = None
    reported_voters: VoterSet | None = None
    """With kraft.version 0: the voters with the directories and versions that they reported. Only in memory."""
    upgrade: PendingUpgrade | None = None
    must_resign: bool = False
    parked: dict[Token, ParkedFetch] = field(default_factory=dict)

    def set_voters(self, voters: VoterSet) -> None:
        """Follow a new voter set: replicas keep their progress when they become voters or observers."""
        old, self.voters = self.voters, {}
        for voter in voters:
            known = old.pop(voter.key.node_id, None)
            if known is not None and not known.key.names(voter.key):
                self.observers.setdefault(known.key, known)
                known = None
            replica = known or self.observers.pop(voter.key, None) or Replica(voter.key)
            replica.key, replica.endpoints = voter.key, voter.endpoints
            self.voters[voter.key.node_id] = replica
        for removed in old.values():
            removed.endpoints = ()
            self.observers.setdefault(removed.key, removed)
        self.fetched &= self.voters.keys()

    def replica(self, key: ReplicaKey) -> Replica:
        """The progress of a replica; an unknown one is an observer."""
        voter = self.voters.get(key.node_id)
        if voter is not None and voter.key.names(key):
            return voter
        return self.observers.setdefault(key, Replica(key))

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica is a voter."""
        voter = self.voters.get(key.node_id)
        return voter is not None and voter.key.names(key)

    def note_fetch(self, key: ReplicaKey, now_ms: int) -> None:
        """Check quorum: when a majority of the voters has fetched, this leader may lead for another period."""
        if self.is_voter(key):
            self.fetched.add(key.node_id)
        needed = quorum.majority(self.voters) - (self.key.node_id in self.voters)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_deadline_ms = now_ms + self.check_quorum_timeout_ms

    def check_deadline_ms(self) -> int:
        """When this leader resigns unless a majority fetches. A single voter never does."""
        alone = len(self.voters) == 1 and self.key.node_id in self.voters
        return FOREVER if alone else self.check_quorum_deadline_ms

    def agreed_offset(self) -> int:
        """The offset up to which a majority of the voters has the log, -1 if unknown."""
        return quorum.majority_offset(self.voters, {node: each.end_offset for node, each in self.voters.items()})

    def silent_voters(self, timeout_ms: int, now_ms: int) -> tuple[ReplicaKey, ...]:
        """The voters, except this one, that have not fetched for `timeout_ms`."""
        return tuple(
            each.key
            for node, each in sorted(self.voters.items())
            if node != self.key.node_id and (each.last_fetch_ms < 0 or now_ms - each.last_fetch_ms >= timeout_ms)
        )

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the one with the longest log first."""
        others = [each for node, each in self.voters.items() if node != self.key.node_id]
        return tuple(each.key for each in sorted(others, key=lambda r: (-r.end_offset, r.key)))

    def has_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer reached the end of the log once, and has fetched within the last hour."""
        replica = self.observers.get(key)
        return replica is not None and replica.caught_up_ms >= 0 and replica.last_fetch_ms > now_ms - CAUGHT_UP_MS

    def forget_observers(self, now_ms: int) -> None:
        """Forget observers that have not fetched for five minutes."""
        for key, each in list(self.observers.items()):
            if key != self.key and now_ms - each.last_fetch_ms >= OBSERVER_SESSION_MS:
                del self.observers[key]


def is_anonymous(key: ReplicaKey) -> bool:
    """Whether a fetch comes from a client without a node id."""
    return key.node_id <= NO_NODE
