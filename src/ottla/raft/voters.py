"""The voters of the quorum, and their history by offset. KIP-853.

A `VotersRecord` takes effect when it is appended, not when it is committed: a replica votes and counts majorities with
the latest voter set in its log. Truncation of the log restores the previous set. Consecutive sets differ by one voter,
so that their majorities have a common voter.

Without such a record the configuration names the voters (kraft.version 0), and their directories are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.common.values import value
from ottla.raft.values import Endpoint, Endpoints, Node, ReplicaKey, address_of

STATIC_VOTERS, DYNAMIC_VOTERS = 0, 1
"""Levels of the feature kraft.version."""


class VersionRange(NamedTuple):
    """The levels of kraft.version that a node supports."""

    lowest: int = STATIC_VOTERS
    highest: int = STATIC_VOTERS

    def supports(self, level: int) -> bool:
        """Whether the level is in the range."""
        return self.lowest <= level <= self.highest


ONLY_STATIC = VersionRange()


@value
class Voter:
    """One voter: its replica, its endpoints, and the levels of kraft.version that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    kraft_versions: VersionRange = ONLY_STATIC


@value
class VoterSet:
    """An immutable set of voters, at most one per node id, ascending by node id."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        """A set of these voters; of several with one node id, the last."""
        return cls(tuple(sorted({voter.key.node_id: voter for voter in voters}.values(), key=lambda v: v.key.node_id)))

    @classmethod
    def of_addresses(cls, listener: str, addresses: Mapping[int, tuple[str, int]]) -> VoterSet:
        """The voters of `controller.quorum.voters`: their directories are unknown."""
        return cls.of(Voter(ReplicaKey(node), (Endpoint(listener, *place),)) for node, place in addresses.items())

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    @property
    def ids(self) -> frozenset[int]:
        """The node ids."""
        return frozenset(voter.key.node_id for voter in self.voters)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The replicas."""
        return frozenset(voter.key for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        """The voter with this node id."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica is a voter. A voter whose directory is unknown matches any directory of its node."""
        voter = self.get(key.node_id)
        return voter is not None and voter.key.names(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether the replica is the only voter."""
        return len(self) == 1 and self.is_voter(key)

    def endpoints(self, node_id: int) -> Endpoints:
        """The endpoints of a voter; empty if it is unknown."""
        voter = self.get(node_id)
        return voter.endpoints if voter is not None else ()

    def node(self, node_id: int, listener: str) -> Node | None:
        """Where a voter is reached on a listener."""
        endpoint = address_of(self.endpoints(node_id), listener)
        return Node(node_id, endpoint.host, endpoint.port) if endpoint is not None else None

    def needs_update(self, voter: Voter) -> bool:
        """Whether the set has this replica, but with other endpoints or versions."""
        known = self.get(voter.key.node_id)
        return known is not None and known.key.names(voter.key) and known != voter

    def add(self, voter: Voter) -> VoterSet | None:
        """The set with another voter; None if a voter has its node id."""
        return None if voter.key.node_id in self.ids else VoterSet.of((*self.voters, voter))

    def remove(self, key: ReplicaKey) -> VoterSet | None:
        """The set without a voter; None if it is not in the set, or is the only voter."""
        voter = self.get(key.node_id)
        if voter is None or voter.key != key or len(self) == 1:
            return None
        return VoterSet(tuple(each for each in self.voters if each is not voter))

    def update(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """The set with new facts about a voter; None if the replica is not in the set."""
        known = self.get(voter.key.node_id)
        if known is None or not (any_directory or known.key.names(voter.key)):
            return None
        return VoterSet.of((*self.voters, voter))

    def supports(self, level: int) -> bool:
        """Whether all voters support this level of kraft.version."""
        return all(voter.kraft_versions.supports(level) for voter in self.voters)


NO_VOTERS = VoterSet()

Value = TypeVar("Value")


class History(Generic[Value]):
    """Values that records set, by the offset of the record, ascending."""

    def __init__(self, default: Value) -> None:
        self._default = default
        self._entries: list[tuple[int, Value]] = []

    def add(self, offset: int, value: Value) -> None:
        """Add the value of a record, which is the last of the log."""
        if self._entries and offset < self._entries[-1][0]:
            raise ValueError(f"The value at offset {offset} follows the one at {self._entries[-1][0]}")
        if self._entries and offset == self._entries[-1][0]:
            self._entries.pop()
        self._entries.append((offset, value))

    @property
    def last(self) -> Value:
        """The latest value; the default if no record has set one."""
        return self._entries[-1][1] if self._entries else self._default

    @property
    def previous(self) -> Value:
        """The value before the latest one."""
        return self._entries[-2][1] if len(self._entries) > 1 else self._default

    @property
    def last_offset(self) -> int | None:
        """The offset of the record with the latest value; None if there is none."""
        return self._entries[-1][0] if self._entries else None

    def at(self, offset: int) -> Value:
        """The value in effect after the record at `offset`."""
        return next((value for start, value in reversed(self._entries) if start <= offset), self._default)

    def truncate_from(self, end_offset: int) -> None:
        """Forget the records at and after `end_offset`, which the log lost."""
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
