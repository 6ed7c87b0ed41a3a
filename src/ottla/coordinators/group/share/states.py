"""The partitions whose share state a share group has created, is creating, or is deleting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import Partitions

NO_PARTITIONS: Partitions = {}
NO_NAMES: Mapping[Uuid, str] = {}


class ShareStates(NamedTuple):
    """Immutable, like the record from which it is replayed. Invariant: no partition is in two of the first two."""

    initializing: Partitions = NO_PARTITIONS
    initialized: Partitions = NO_PARTITIONS
    deleting: frozenset[Uuid] = frozenset()
    names: Mapping[Uuid, str] = NO_NAMES
    """The names of all these topics."""

    def begin(self, partitions: Partitions, names: Mapping[Uuid, str]) -> ShareStates:
        """The states when `partitions` are being initialized."""
        return self._replace(
            initializing=union(self.initializing, partitions),
            deleting=self.deleting - partitions.keys(),
            names={**self.names, **names},
        )

    def finish(self, done: Partitions, failed: Partitions) -> ShareStates:
        """The states when `done` were initialized and `failed` were not; ignores what is not being initialized."""
        known = {topic: parts & self.initializing.get(topic, frozenset()) for topic, parts in done.items()}
        return self._replace(
            initializing=difference(difference(self.initializing, known), failed),
            initialized=union(self.initialized, known),
        )

    def delete(self) -> ShareStates:
        """The states when the state of all partitions is being deleted."""
        topics = self.initializing.keys() | self.initialized.keys() | self.deleting
        return ShareStates(deleting=frozenset(topics), names=self.names)

    @property
    def topics(self) -> frozenset[Uuid]:
        """All these topics."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def delete_topics(self, topics: AbstractSet[Uuid]) -> ShareStates:
        """The states when the state of all partitions of `topics` is being deleted."""
        rest = self.without(topics)
        return rest._replace(deleting=rest.deleting | topics, names=self.names)

    def without(self, topics: Iterable[Uuid]) -> ShareStates:
        """The states when `topics` do not exist any more."""
        gone = frozenset(topics)
        return ShareStates(
            {topic: parts for topic, parts in self.initializing.items() if topic not in gone},
            {topic: parts for topic, parts in self.initialized.items() if topic not in gone},
            self.deleting - gone,
            {topic: name for topic, name in self.names.items() if topic not in gone},
        )


def union(left: Partitions, right: Partitions) -> Partitions:
    """The partitions that are in one of the two."""
    empty: frozenset[int] = frozenset()
    both = {topic: left.get(topic, empty) | right.get(topic, empty) for topic in left.keys() | right.keys()}
    return {topic: parts for topic, parts in both.items() if parts}


def difference(left: Partitions, right: Partitions) -> Partitions:
    """The partitions of `left` that are not in `right`."""
    rest = {topic: parts - right.get(topic, frozenset()) for topic, parts in left.items()}
    return {topic: parts for topic, parts in rest.items() if parts}
