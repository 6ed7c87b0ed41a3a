"""Range: of each topic a run of neighbouring partitions per member, so that equal topics lie side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla.clients.consumer.assignors.base import Assignment, Assignor, Member, subscribers
from ottla.common.ids import TopicPartition


class RangeAssignor(Assignor):
    """Kafka's default; the first members get one partition more where it does not divide."""

    name: ClassVar[str] = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        """Partitions of every member."""
        result: Assignment = {member.member_id: [] for member in members}
        for topic, readers in subscribers(members).items():
            each, extra = divmod(partition_counts.get(topic, 0), len(readers))
            start = 0
            for index, member in enumerate(readers):
                end = start + each + (index < extra)
                result[member.member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return result
