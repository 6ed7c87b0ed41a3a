"""The topology of an application, as its members send it and the record keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol import streams_group_records as s
from ottla.protocol.messages import streams_group_heartbeat as h


class StreamsTopology:
    """The topology; `record` must not be changed."""

    def __init__(self, record: s.StreamsGroupTopologyValue) -> None:
        self.record = record
        self.epoch = record.epoch

    @classmethod
    def of_request(cls, topology: h.Topology) -> StreamsTopology:
        """The topology of a request. Raises STREAMS_INVALID_TOPOLOGY."""
        rows = [
            s.Subtopology(
                subtopology_id=row.subtopology_id,
                source_topics=row.source_topics,
                source_topic_regex=row.source_topic_regex,
                state_changelog_topics=_internal(row.state_changelog_topics),
                repartition_sink_topics=row.repartition_sink_topics,
                repartition_source_topics=_internal(row.repartition_source_topics),
                copartition_groups=[
                    s.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in row.copartition_groups
                ],
            )
            for row in topology.subtopologies
        ]
        found = cls(s.StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=rows))
        found.check()
        return found

    def check(self) -> None:
        """Raise STREAMS_INVALID_TOPOLOGY if the parts of the topology do not fit together."""
        problem = None
        rows = self.record.subtopologies
        if self.epoch < 0:
            problem = "Topology epoch must be non-negative."
        elif len(self.by_id) < len(rows):
            problem = "Each subtopology must appear at most once."
        for row in rows:
            if not row.source_topics and not row.repartition_source_topics:
                problem = f"No source topics found for subtopology {row.subtopology_id}"
            for group in row.copartition_groups:
                indexes = (
                    (group.source_topics, row.source_topics),
                    (group.repartition_source_topics, row.repartition_source_topics),
                )
                if not all(0 <= index < len(topics) for some, topics in indexes for index in some):
                    problem = f"A copartition group of subtopology {row.subtopology_id} names an unknown topic."
        if problem is not None:
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)

    @cached_property
    def by_id(self) -> dict[str, s.Subtopology]:
        """The subtopologies, in the order of their ids."""
        rows = {row.subtopology_id: row for row in self.record.subtopologies}
        return {name: rows[name] for name in sorted(rows)}

    @cached_property
    def subtopology_of(self) -> dict[str, str]:
        """The subtopology that reads each topic."""
        return {topic: name for name, row in self.by_id.items() for topic in sources(row)}

    @cached_property
    def required_topics(self) -> frozenset[str]:
        """The topics that must exist: source, repartition and changelog topics."""
        changelogs = (topic.name for row in self.by_id.values() for topic in row.state_changelog_topics)
        return frozenset((*self.subtopology_of, *changelogs))

    def is_same(self, other: StreamsTopology) -> bool:
        """Whether it has the same epoch and subtopologies."""
        return self.epoch == other.epoch and self.by_id == other.by_id


def sources(row: s.Subtopology) -> list[str]:
    """The topics that a subtopology reads."""
    return [*row.source_topics, *(topic.name for topic in row.repartition_source_topics)]


def _internal(rows: Iterable[h.TopicInfo]) -> list[s.InternalTopicInfo]:
    return [
        s.InternalTopicInfo(
            name=row.name,
            partitions=row.partitions,
            replication_factor=row.replication_factor,
            topic_configs=[s.TopicConfig(key=config.key, value=config.value) for config in row.topic_configs],
        )
        for row in rows
    ]
