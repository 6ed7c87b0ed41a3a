"""The range assignor: each member gets adjacent partitions of each topic.

For topics with equal partition counts, a member gets the same partition numbers of each, so it can join them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla.clients.consumer.assignors.base import Assignment, Assignor, Member, subscribers
from ottla.common.ids import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's default. If the division has a remainder, the first members get one more partition."""

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
