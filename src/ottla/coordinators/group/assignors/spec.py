"""The input and the result of an assignor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.common.ids import Uuid

Partitions: TypeAlias = Mapping[Uuid, frozenset[int]]
"""Partitions by topic id. A topic without partitions is omitted."""

TargetPartitions: TypeAlias = dict[str, Partitions]
"""The partitions of each member, by member id; a member without partitions may be omitted."""


class MemberSpec(NamedTuple):
    """One member: the existing topics to which it subscribes, and its present target assignment."""

    topic_ids: frozenset[Uuid]
    assigned: Partitions
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members of a group by id, and the number of partitions of each subscribed topic."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[Uuid, int]
    same_topics: bool
    """Whether all members subscribe to the same topics."""
    first: str = ""
    """The member whose heartbeat computes the assignment: it learns its part now, the others with their next heartbeat.

    Among members that may equally well get a partition, it is the first.
    """


Assignor: TypeAlias = Callable[[GroupSpec], TargetPartitions]


def frozen(assigned: Mapping[Uuid, set[int]]) -> Partitions:
    """Convert the sets of an assignment under construction; topics without partitions are omitted."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items() if partitions}
