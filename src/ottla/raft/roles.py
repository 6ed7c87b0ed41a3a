"""The roles of a replica, the legal transitions as a table, and the state that belongs to each role. KIP-595, KIP-996.

    UNATTACHED   knows no leader; a voter waits for its election timeout, an observer asks the bootstrap servers
    PROSPECTIVE  asks for pre-votes in its present epoch, which changes nothing at the other voters
    CANDIDATE    has voted for itself in a new epoch and asks for votes
    LEADER       appends and serves records
    FOLLOWER     fetches from the leader
    RESIGNED     was the leader of the epoch, and asks the other voters to elect the next one

Two more names are in use, for attributes of these roles: a replica that has *voted* is UNATTACHED or PROSPECTIVE with
a vote in its `Election`. An *observer* is UNATTACHED or FOLLOWER and not in the latest voter set; a leader that removes
itself stays leader until its removal is committed.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from ottla.common.values import state
from ottla.raft.ballot import Ballot
from ottla.raft.connections import FOREVER
from ottla.raft.values import ReplicaKey, SnapshotId


class Role(Enum):
    """The role of a replica in its epoch."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


# A higher epoch, or news about the epoch's leader, leads to UNATTACHED or FOLLOWER. The other transitions are timeouts
# and the outcomes of elections. RESIGNED -> PROSPECTIVE is the start of a quorum's only voter.
TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
}


@state
class Unattached:
    """Waits for a leader. Deadlines are on the monotonic clock."""

    role: ClassVar = Role.UNATTACHED
    election_deadline_ms: int = FOREVER


@state
class Prospective:
    """Asks for pre-votes until the deadline."""

    role: ClassVar = Role.PROSPECTIVE
    ballot: Ballot
    election_deadline_ms: int


@state
class Candidate:
    """Asks for votes until the deadline."""

    role: ClassVar = Role.CANDIDATE
    ballot: Ballot
    election_deadline_ms: int
    has_backed_off: bool = False
    """A voter rejected this candidate, so that the deadline was shortened."""


@state
class SnapshotFetch:
    """A snapshot that is fetched in parts: `position` bytes are here."""

    snapshot: SnapshotId
    position: int = 0
    is_loading: bool = False
    """All parts are here, and the shell replaces the log with the snapshot."""


@state
class Follower:
    """Fetches from the leader, and stands for election if it does not answer until the deadline."""

    role: ClassVar = Role.FOLLOWER
    fetch_deadline_ms: int
    voter_check_deadline_ms: int
    """When to check again whether the voter set has this replica, with its present endpoints and versions."""
    has_fetched: bool = False
    """A leader that answers is alive, so that its follower grants no pre-votes."""
    has_updated_voter: bool = False
    leader_high_watermark: int = -1
    fetching: SnapshotFetch | None = None
    fetch_after_ms: int = 0
    """No fetch is sent before: the last snapshot was damaged."""


@state
class Resigned:
    """Sends EndQuorumEpoch to each voter until it acknowledges, or until the deadline."""

    role: ClassVar = Role.RESIGNED
    election_deadline_ms: int
    unacknowledged: set[int]
    preferred: tuple[ReplicaKey, ...] = ()
