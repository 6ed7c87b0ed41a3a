"""Periodic elections: preferred leaders, and unclean leaders where the topic allows them. KIP-966 (unclean recovery).

One operation decides a limited number of elections, and reports whether the caller must call again at once.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.slices import Slices
from ottla.controller import leaders
from ottla.controller.partition_change import Election, Target
from ottla.controller.state import Outcome, State
from ottla.metadata.image import NO_LEADER, PartitionImage, TopicImage
from ottla.protocol.message import Message

# Kafka's limit for one operation.
MOST_ELECTIONS = 1_000


def balance_leaders(state: State) -> Slices[Outcome[bool]]:
    """Elect the preferred leader of partitions that another replica leads, if it is in sync."""

    def is_imbalanced(_: TopicImage, partition: PartitionImage) -> bool:
        return partition.leader not in (NO_LEADER, partition.replicas[0])

    return _elect(state, is_imbalanced, Election.PREFERRED)


def elect_unclean_leaders(state: State) -> Slices[Outcome[bool]]:
    """Elect any available replica of partitions without a leader whose topic allows to lose records."""

    def may_lose_records(topic: TopicImage, partition: PartitionImage) -> bool:
        return partition.leader == NO_LEADER and leaders.unclean_allowed(state, topic.name)

    return _elect(state, may_lose_records, Election.UNCLEAN)


def _elect(
    state: State, is_wanted: Callable[[TopicImage, PartitionImage], bool], election: Election
) -> Slices[Outcome[bool]]:
    records: list[Message] = []
    for topic in state.image.topics_by_name.values():
        yield
        for index, partition in topic.partitions.items():
            if len(records) >= MOST_ELECTIONS:
                return Outcome(records, True)
            if is_wanted(topic, partition):
                records += leaders.change(state, topic, index, Target(), election)
                yield
    return Outcome(records, False)
