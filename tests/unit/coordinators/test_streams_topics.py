"""The topics of a topology: how many partitions internal topics get, and which topics are reported as wrong."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.streams.topics import ConfiguredTopology, Status, configure
from ottla.coordinators.group.streams.topology import StreamsTopology
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.protocol.messages import streams_group_heartbeat as h

PARTITION = PartitionImage((1,), (1,), 1, 0, 0)


def topics_of(**counts: int) -> Topics:
    images = [TopicImage(n, n.encode().rjust(16), dict.fromkeys(range(c), PARTITION)) for n, c in counts.items()]
    return Topics({each.name: each for each in images}, {each.topic_id: each for each in images}, 1)


def subtopology(
    name: str,
    *sources: str,
    sinks: tuple[str, ...] = (),
    repartition: dict[str, int] | None = None,
    changelogs: tuple[str, ...] = (),
    together: bool = False,
) -> h.Subtopology:
    rows = [h.TopicInfo(topic, partitions=count) for topic, count in (repartition or {}).items()]
    group = h.CopartitionGroup(source_topics=[*range(len(sources))], repartition_source_topics=[*range(len(rows))])
    return h.Subtopology(
        subtopology_id=name,
        source_topics=[*sources],
        repartition_sink_topics=[*sinks],
        repartition_source_topics=rows,
        state_changelog_topics=[h.TopicInfo(topic) for topic in changelogs],
        copartition_groups=[group] if together else [],
    )


def configured(topics: Topics, *rows: h.Subtopology) -> ConfiguredTopology:
    return configure(StreamsTopology.of_request(h.Topology(subtopologies=[*rows])), topics)


def missing(topics: Topics, *rows: h.Subtopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in configured(topics, *rows).missing}


def problem(topics: Topics, *rows: h.Subtopology) -> tuple[Status, str]:
    found = configured(topics, *rows)
    assert found.subtopologies is None
    assert found.problem is not None
    return found.problem


def test_repartition_topics_follow_the_largest_source_through_all_subtopologies() -> None:
    rows = (
        subtopology("2", repartition={"second": 0}, changelogs=("state",)),
        subtopology("1", "small", sinks=("second",), repartition={"first": 0}),
        subtopology("0", "large", "small", sinks=("first",)),
    )
    topics = topics_of(large=6, small=2)
    assert missing(topics, *rows) == {"first": 6, "second": 6, "state": 6}
    found = configured(topics, *rows).subtopologies
    assert found is not None
    assert {name: row.tasks for name, row in found.items()} == {"0": 6, "1": 6, "2": 6}


def test_fixed_numbers_of_partitions_are_kept() -> None:
    rows = (subtopology("0", "a", sinks=("r",)), subtopology("1", repartition={"r": 3}, changelogs=("s",)))
    assert missing(topics_of(a=7), *rows) == {"r": 3, "s": 3}


def test_topics_of_a_copartition_group_are_made_equal() -> None:
    rows = (subtopology("0", "a", sinks=("r",)), subtopology("1", "b", repartition={"r": 0}, together=True))
    assert missing(topics_of(a=7, b=2), *rows) == {"r": 2}, "the number of the topic that exists"
    internal = (
        subtopology("0", "a", sinks=("r",)),
        subtopology("1", "b", sinks=("q",)),
        subtopology("2", repartition={"r": 0, "q": 0}, together=True),
    )
    assert missing(topics_of(a=7, b=2), *internal) == {"r": 7, "q": 7}


def test_sources_that_must_be_copartitioned_and_are_not_are_reported() -> None:
    status, detail = problem(topics_of(a=2, b=3), subtopology("0", "a", "b", together=True))
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail == "Following topics do not have the same number of partitions: [{a=2, b=3}]"
    rows = (subtopology("0", "a", sinks=("r",)), subtopology("1", "a", repartition={"r": 5}, together=True))
    status, detail = problem(topics_of(a=2), *rows)
    assert status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert detail.startswith("Number of partitions [5] of repartition topic [r] doesn't match number of partitions [2]")


def test_long_lists_of_topics_are_abbreviated() -> None:
    detail = problem(topics_of(), subtopology("0", *"edcba"))
    assert detail == (Status.MISSING_SOURCE_TOPICS, "Source topics a, b, c and 2 additional topics are missing.")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((subtopology("0", sinks=("r",), repartition={"r": 0}),), "There may be loops in the topology"),
        ((subtopology("0", "a"), subtopology("1", repartition={"r": 0})), "never used as a sink topic"),
        ((subtopology("0", "a"), subtopology("0", "a")), "Each subtopology must appear at most once."),
        (
            (h.Subtopology("0", ["a"], copartition_groups=[h.CopartitionGroup(source_topics=[1])]),),
            "A copartition group of subtopology 0 names an unknown topic.",
        ),
    ],
)
def test_topologies_that_cannot_be_configured_are_invalid(rows: tuple[h.Subtopology, ...], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as raised:
        configured(topics_of(a=2), *rows)
    assert raised.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
