"""The round-robin assignor: partitions go to the members in turn, skipping members without the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla.clients.consumer.assignors.base import Assignment, Assignor, Member, in_order, subscribers
from ottla.common.ids import TopicPartition


class RoundRobinAssignor(Assignor):
    """Distributes all partitions evenly if all members subscribe to the same topics."""

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
