"""What an assignor is, and the order in which all of them look at members.

An assignor keeps no state: what it has to remember between two rebalances comes in with the call.
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
    """One member as the leader sees it. `owned` and `generation` are what its subscription claims."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]


class Assignor(ABC):
    """Distributes partitions over members. Subclass it for a strategy of your own: `name` is what members agree on."""

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False
    """Whether members keep their partitions while the group rebalances."""

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002 - for subclasses
        """What a member tells the leader beside its topics; `owned` is its last assignment, of `generation`."""
        return None

    @abstractmethod
    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        """The partitions of every member; topics without partitions are not in `partition_counts`."""


def in_order(members: Iterable[Member]) -> list[Member]:
    """Members in Kafka's order: static ones by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))


def subscribers(members: Iterable[Member]) -> dict[str, list[Member]]:
    """Members of each topic, in order; topics sorted."""
    by_topic: dict[str, list[Member]] = {}
    for member in in_order(members):
        for topic in dict.fromkeys(member.topics):
            by_topic.setdefault(topic, []).append(member)
    return dict(sorted(by_topic.items()))
