"""A share group (KIP-932): its members, and the partitions that have share state. Only replay changes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.modern import ModernGroup, TopicCounts
from ottla.coordinators.group.share.states import NO_PARTITIONS, ShareStates


def _no_partitions() -> Partitions:
    return NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member of a share group."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=_no_partitions)


NO_MEMBER = ShareMember("")


class ShareGroup(ModernGroup[ShareMember]):
    """The group."""

    __slots__ = ("initializing_since_ms", "shares")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.shares = ShareStates()
        # Not durable: since when this shard waits for the state of a topic's partitions, on the monotonic clock.
        self.initializing_since_ms: dict[Uuid, int] = {}

    @property
    def state_name(self) -> str:
        """Kafka's name of the state."""
        return "Stable" if self.members else "Empty"

    def topics_after(self, before: ShareMember, after: ShareMember) -> TopicCounts:
        """The group's topics if the member `before` becomes `after`; do not change them."""
        if before.topic_names == after.topic_names:
            return self.state.topics
        topics = self.state.topics.copy()
        topics.replace(before.topic_names, after.topic_names)
        return topics

    def put(self, member: ShareMember) -> None:
        """Add a member, or replace its previous value."""
        before = self.members.get(member.member_id, NO_MEMBER)
        self.state.topics.replace(before.topic_names, member.topic_names)
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.state.topics.replace(member.topic_names, ())

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        for member_id, member in self.members.items():
            assert member_id == member.member_id
            assert all(member.assigned.values()), "a topic without partitions"
        names = Counter(topic for member in self.members.values() for topic in member.topic_names)
        assert self.state.topics.by_name == names
        super().validate()
        shares = self.shares
        for topic, partitions in shares.initializing.items():
            assert not partitions & shares.initialized.get(topic, frozenset()), "initialized twice"
            assert topic not in shares.deleting, "initialized while it is deleted"
