"""The base class of assignors, the order of members that all assignors use, and the two assignors without claims.

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


class RangeAssignor(Assignor):
    """Kafka's default: each member gets adjacent partitions of each topic.

    If the division has a remainder, the first members get one more partition. For topics with equal partition counts, a
    member gets the same partition numbers of each, so it can join them.
    """

    name: ClassVar[str] = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        result: Assignment = {member.member_id: [] for member in members}
        for topic, readers in subscribers(members).items():
            each, extra = divmod(partition_counts.get(topic, 0), len(readers))
            start = 0
            for index, member in enumerate(readers):
                end = start + each + (index < extra)
                result[member.member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return result


class RoundRobinAssignor(Assignor):
    """Gives partitions to the members one after another: even if all members subscribe to the same topics."""

    name: ClassVar[str] = "roundrobin"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        result: Assignment = {member.member_id: [] for member in members}
        circle = in_order(members)
        turn = 0
        for topic in subscribers(members):
            for partition in range(partition_counts.get(topic, 0)):
                while topic not in circle[turn % len(circle)].topics:
                    turn += 1
                result[circle[turn % len(circle)].member_id].append(TopicPartition(topic, partition))
                turn += 1
        return result
