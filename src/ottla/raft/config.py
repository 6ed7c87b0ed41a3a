"""The configuration of a replica: its identity, the nodes that it can ask for the leader, and its timeouts."""

from __future__ import annotations

from ottla.common.ids import ZERO_UUID, Uuid
from ottla.common.values import value
from ottla.raft.values import Endpoints, Node, ReplicaKey
from ottla.raft.voters import DYNAMIC_VOTERS, NO_VOTERS, STATIC_VOTERS, VersionRange, Voter, VoterSet

ALL_VERSIONS = VersionRange(STATIC_VOTERS, DYNAMIC_VOTERS)


@value
class QuorumConfig:
    """A replica's identity and settings. Times in milliseconds, with Kafka's defaults."""

    node_id: int
    directory_id: Uuid = ZERO_UUID
    cluster_id: str | None = None
    """None accepts requests of any cluster."""
    static_voters: VoterSet = NO_VOTERS
    """`controller.quorum.voters`; empty if the voters are in the log."""
    bootstrap: tuple[Node, ...] = ()
    """`controller.quorum.bootstrap.servers`, or the static voters: the nodes to ask for the leader."""
    endpoints: Endpoints = ()
    """This node's controller listeners; empty if it has none, as a broker."""
    listener: str = "CONTROLLER"
    """The listener on which other nodes are reached."""
    kraft_versions: VersionRange = ALL_VERSIONS
    can_become_voter: bool = True
    """False for a node with only the broker role: it needs no flush before it fetches on."""
    auto_join: bool = False
    """`controller.quorum.auto.join.enable`: an observer that can become a voter asks to be added."""
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20

    @property
    def key(self) -> ReplicaKey:
        """This replica."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def voter(self) -> Voter:
        """This replica, as a voter set should name it."""
        return Voter(self.key, self.endpoints, self.kraft_versions)
