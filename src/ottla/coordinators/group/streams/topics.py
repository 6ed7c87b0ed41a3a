"""Validates the topics of a topology, and decides how many partitions its internal topics and subtopologies have.

Repartition topics without a fixed number of partitions get as many as the largest source of the subtopologies that
write them. Then the topics of a copartition group are made equal. A changelog topic has one partition for each task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.streams.topology import StreamsTopology, sources
from ottla.protocol import streams_group_records as s

MOST_NAMED = 3


class Status(IntEnum):
    """A state of a group that its members learn. Values are Kafka's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(NamedTuple):
    """Why a topology cannot be used yet."""

    status: Status
    detail: str


class InternalTopic(NamedTuple):
    """A repartition or changelog topic; the replication factor 0 means the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with the numbers of its tasks and of the partitions of its internal topics."""

    tasks: int
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """The outcome: subtopologies in the order of their ids, None if they cannot be configured."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics that do not exist yet."""
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _ProblemFound(Exception):
    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.problem = TopicProblem(status, detail)


def configure(topology: StreamsTopology, topics: Topics) -> ConfiguredTopology:
    """Compare the topology with the topics that exist. Raises STREAMS_INVALID_TOPOLOGY."""
    try:
        _check_sources(topology, topics)
        counts = _PartitionCounts(topology, topics)
        found = {name: counts.configured(row) for name, row in topology.by_id.items()}
        missing = _missing(found, topics)
    except _ProblemFound as error:
        return ConfiguredTopology(None, (), error.problem)
    if not missing:
        return ConfiguredTopology(found)
    detail = f"Internal topics are missing: {summary(topic.name for topic in missing)}"
    return ConfiguredTopology(found, missing, TopicProblem(Status.MISSING_INTERNAL_TOPICS, detail))


def summary(names: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - MOST_NAMED} additional topics" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "<none>"


def _check_sources(topology: StreamsTopology, topics: Topics) -> None:
    wanted = {topic for row in topology.by_id.values() for topic in row.source_topics}
    missing = sorted(wanted - topics.by_name.keys())
    if missing:
        raise _ProblemFound(Status.MISSING_SOURCE_TOPICS, f"Source topics {summary(missing)} are missing.")


class _PartitionCounts:
    """The numbers of partitions of internal topics; a topic that exists has the number that it has."""

    def __init__(self, topology: StreamsTopology, topics: Topics) -> None:
        self._topics = topics
        self._rows = topology.by_id.values()
        infos = [info for row in self._rows for info in row.repartition_source_topics]
        self._fixed = {info.name for info in infos if info.partitions}
        self._flexible = {info.name for info in infos if not info.partitions}
        self._decided = {info.name: info.partitions for info in infos if info.partitions}
        self._decide_repartition_topics()
        for row in self._rows:
            for group in row.copartition_groups:
                names = {row.source_topics[index] for index in group.source_topics}
                names |= {row.repartition_source_topics[index].name for index in group.repartition_source_topics}
                self._make_equal(names)

    def configured(self, row: s.Subtopology) -> ConfiguredSubtopology:
        """The subtopology; as many tasks as the largest source has partitions."""
        tasks = max(map(self._count, sources(row)))
        repartition = tuple(_topic(info, self._decided[info.name]) for info in row.repartition_source_topics)
        changelogs = tuple(_topic(info, info.partitions or tasks) for info in row.state_changelog_topics)
        sinks = tuple(row.repartition_sink_topics)
        return ConfiguredSubtopology(tasks, tuple(row.source_topics), sinks, repartition, changelogs)

    def _known(self, topic: str) -> int | None:
        image = self._topics.by_name.get(topic)
        return self._decided.get(topic) if image is None else len(image.partitions)

    def _count(self, topic: str) -> int:
        count = self._known(topic)
        if count is None:
            message = f"Number of partitions is not set for topic: {topic}"
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
        return count

    def _decide_repartition_topics(self) -> None:
        """Follow the sinks from the source topics on, until all of them have a number."""
        counts = dict(self._decided)
        waiting = [(sink, row) for row in self._rows for sink in row.repartition_sink_topics]
        while waiting:
            left = []
            for sink, row in waiting:
                inputs = [counts.get(info.name) for info in row.repartition_source_topics]
                inputs += [self._known(topic) for topic in row.source_topics]
                known = [count for count in inputs if count is not None]
                if sink in counts:
                    continue
                if known:
                    counts[sink] = max(known)
                else:
                    left.append((sink, row))
            if len(left) == len(waiting):
                message = "Failed to compute number of partitions for all repartition topics."
                more = " There may be loops in the topology that cannot be resolved."
                raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message + more)
            waiting = left
        if not self._flexible <= counts.keys():
            message = "Failed to compute number of partitions for all repartition topics, because a repartition source"
            raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"{message} topic is never used as a sink topic.")
        self._decided.update(counts)

    def _make_equal(self, names: set[str]) -> None:
        """Give the topics of a copartition group the same number of partitions."""
        internal = {name: self._count(name) for name in sorted(names & (self._fixed | self._flexible))}
        others = {name: self._count(name) for name in sorted(names - internal.keys())}
        fixed = {name: count for name, count in internal.items() if name in self._fixed}
        for same in (others, fixed):
            if len(set(same.values())) > 1:
                shown = ", ".join(f"{name}={count}" for name, count in same.items())
                detail = f"Following topics do not have the same number of partitions: [{{{shown}}}]"
                raise _ProblemFound(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)
        if not internal:
            return
        count = next(iter((others or fixed).values()), max(internal.values()))
        for name, partitions in fixed.items():
            if partitions != count:
                detail = (
                    f"Number of partitions [{partitions}] of repartition topic [{name}] doesn't match number of"
                    f" partitions [{count}] of the source topic."
                )
                raise _ProblemFound(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)
        self._decided.update(dict.fromkeys(internal, count))


def _topic(info: s.InternalTopicInfo, partitions: int) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in info.topic_configs)
    return InternalTopic(info.name, partitions, info.replication_factor, configs)


def _missing(subtopologies: Mapping[str, ConfiguredSubtopology], topics: Topics) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist, by name. A topic that exists must have the right number of partitions."""
    rows = subtopologies.values()
    wanted = {topic.name: topic for row in rows for topic in (*row.repartition_sources, *row.changelogs)}
    missing = []
    for name, topic in sorted(wanted.items()):
        image = topics.by_name.get(name)
        if image is None:
            missing.append(topic)
        elif len(image.partitions) != topic.partitions:
            detail = (
                f"Existing topic {name} has different number of partitions: expected {topic.partitions},"
                f" found {len(image.partitions)}"
            )
            raise _ProblemFound(Status.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return tuple(missing)
