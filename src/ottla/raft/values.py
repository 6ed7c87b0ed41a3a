"""Values that the quorum's messages, files and states share: replicas, endpoints, ends of logs, elections. KIP-853."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ottla.common.ids import ZERO_UUID, Uuid

NO_NODE = -1


class ReplicaKey(NamedTuple):
    """A replica of the metadata log: a node, and the directory with its log. The zero UUID: directory unknown."""

    node_id: int
    directory_id: Uuid = ZERO_UUID

    def names(self, other: ReplicaKey) -> bool:
        """Whether `other` is this replica; an unknown directory in this key names any directory of the node."""
        return self.node_id == other.node_id and self.directory_id in (ZERO_UUID, other.directory_id)


NO_REPLICA = ReplicaKey(NO_NODE)


class Endpoint(NamedTuple):
    """Where a listener of a node is reached."""

    name: str
    host: str
    port: int


Endpoints: TypeAlias = tuple[Endpoint, ...]


class Node(NamedTuple):
    """The destination of a request. A bootstrap server whose node id is unknown has an id below -1."""

    node_id: int
    host: str
    port: int


class LogEnd(NamedTuple):
    """Where a log ends: the offset after its last record, and that record's epoch. An empty log ends at 0, epoch 0."""

    offset: int
    epoch: int

    def is_behind(self, other: LogEnd) -> bool:
        """Whether `other` is more up to date: a later epoch, or a higher offset in the same epoch."""
        return (self.epoch, self.offset) < (other.epoch, other.offset)


class SnapshotId(NamedTuple):
    """A snapshot contains the effect of all records below `end_offset`; the last of them has `epoch`. KIP-630."""

    end_offset: int
    epoch: int


NO_SNAPSHOT = SnapshotId(-1, -1)
BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)
"""Each node writes this snapshot itself, at its first start. It is not sent to other nodes."""


class Election(NamedTuple):
    """The durable state of a replica: its epoch, the epoch's leader if known, and its vote in the epoch."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey = NO_REPLICA

    @property
    def has_leader(self) -> bool:
        """Whether the epoch's leader is known."""
        return self.leader_id != NO_NODE

    @property
    def has_voted(self) -> bool:
        """Whether this replica voted in the epoch."""
        return self.voted.node_id != NO_NODE


def address_of(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """The endpoint of a listener; names are compared without case, as Kafka normalizes them."""
    return next((each for each in endpoints if each.name.upper() == listener.upper()), None)
