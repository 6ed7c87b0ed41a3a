"""The base class of assignors, and the order of members that all assignors use.

An assignor has no state. The previous assignment, if it needs one, is an argument of each call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ottla.common.ids import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the group. `owned` and `generation` are its previous assignment according to its subscription."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]


class Assignor(ABC):
    """Distributes partitions over members. Subclasses are strategies; the members of a group agree on a `name`."""

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance."""

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002 - for subclasses
        """Return the user data of a member's subscription. `owned` is its last assignment, of `generation`."""
        return None

    @abstractmethod
    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        """Return the partitions of every member. `partition_counts` omits topics without partitions."""


def in_order(members: Iterable[Member]) -> list[Member]:
    """Sort members in Kafka's order: static members by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))


def subscribers(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Return the members that subscribe to each topic, in Kafka's order; the topics are sorted."""
    by_topic: dict[str, list[Member]] = {}
    for member in in_order(members):
        for topic in dict.fromkeys(member.topics):
            by_topic.setdefault(topic, []).append(member)
    return dict(sorted(by_topic.items()))
