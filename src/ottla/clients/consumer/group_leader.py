"""The leader of a classic group: it assigns the partitions, and watches whether their number changes."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.assignors import Assignor, Member
from ottla.clients.consumer.group_protocol import assignment_bytes, decode_member
from ottla.protocol.messages.join_group import JoinGroupResponse


class GroupLeader:
    """The leader of one generation. `counts` has the number of partitions of each topic of the group."""

    def __init__(self, response: JoinGroupResponse, previous: GroupLeader | None) -> None:
        """`previous` is the same member in the previous generation, if it led the group. Raises DecodeError."""
        rows = response.members
        self._members: list[Member] = [
            decode_member(row.member_id, row.group_instance_id, row.metadata) for row in rows
        ]
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self.only_counts = response.skip_assignment
        """The members keep their assignment (KIP-814)."""
        self.counts: dict[str, int] = {} if previous is None else previous.counts
        self.is_refreshed = False
        """Whether the metadata was refreshed for this assignment."""

    def needs_refresh(self, view: ClusterView) -> bool:
        """Whether the metadata must be refreshed first, because a topic is unknown."""
        return not self.is_refreshed and any(topic not in view.topics for topic in self.topics)

    def count(self, view: ClusterView) -> None:
        """Take over the number of partitions."""
        self.counts = _count(view, self.topics)

    def has_changed(self, view: ClusterView) -> bool:
        """Whether there are other partitions than those that were counted."""
        return self.counts != _count(view, self.counts)

    def assign(self, assignor: Assignor) -> dict[str, bytes]:
        """The assignment of each member."""
        counts = {topic: count for topic, count in self.counts.items() if count}
        assigned = assignor.assign(counts, self._members)
        return {member_id: assignment_bytes(partitions) for member_id, partitions in assigned.items()}


def _count(view: ClusterView, topics: Iterable[str]) -> dict[str, int]:
    return {topic: len(view.partitions(topic) or ()) for topic in topics}
