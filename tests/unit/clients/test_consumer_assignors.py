"""Assignors: range and roundrobin assign as other clients do; the sticky ones are balanced and sticky."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.consumer.assignors import (
    ASSIGNORS,
    CooperativeStickyAssignor,
    Member,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
)
from ottla.common.ids import TopicPartition
from tests.conftest import DRAWN_EXAMPLES

TOPICS = ("a", "b", "c")
counts_of = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
groups = st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)


def members(subscriptions: list[set[str]]) -> list[Member]:
    return [Member(f"m{i}", tuple(sorted(topics))) for i, topics in enumerate(subscriptions)]


def present(counts: dict[str, int]) -> dict[str, int]:
    return {topic: count for topic, count in counts.items() if count}


@given(counts_of, groups)
@settings(max_examples=2 * DRAWN_EXAMPLES, deadline=None)
@pytest.mark.parametrize("name", list(ASSIGNORS))
def test_every_partition_is_assigned_to_one_subscriber(
    name: str, counts: dict[str, int], subscriptions: list[set[str]]
) -> None:
    group = members(subscriptions)
    result = ASSIGNORS[name]().assign(present(counts), group)
    given_out = Counter(tp for partitions in result.values() for tp in partitions)
    read = set().union(*subscriptions)
    assert given_out == Counter(TopicPartition(t, p) for t, n in counts.items() if t in read for p in range(n))
    assert set(result) == {m.member_id for m in group}
    for member in group:
        assert {tp.topic for tp in result[member.member_id]} <= set(member.topics)


@given(counts_of, groups)
@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
def test_roundrobin_and_range_assign_as_kafka_python_does(
    counts: dict[str, int], subscriptions: list[set[str]]
) -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    class Cluster:
        def partitions_for_topic(self, topic: str) -> set[int] | None:
            return set(range(counts[topic])) or None

    for ours, theirs in ((RangeAssignor, RangePartitionAssignor), (RoundRobinAssignor, RoundRobinPartitionAssignor)):
        if theirs is RoundRobinPartitionAssignor and len(set(map(frozenset, subscriptions))) > 1:
            continue  # kafka-python's fails when members subscribe to different topics
        asked = [
            SimpleNamespace(member_id=f"m{i}", group_instance_id=None, metadata=SimpleNamespace(topics=sorted(topics)))
            for i, topics in enumerate(subscriptions)
        ]
        expected = {
            member_id: sorted(TopicPartition(row[0], p) for row in answer.assigned_partitions for p in row[1])
            for member_id, answer in theirs.assign(Cluster(), asked).items()
        }
        got = ours().assign(present(counts), members(subscriptions))
        assert {m: sorted(tps) for m, tps in got.items()} == expected


@given(st.integers(1, 30), st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=DRAWN_EXAMPLES, deadline=None)
def test_sticky_moves_only_as_many_partitions_as_balance_needs(partitions: int, before: int, after: int) -> None:
    assignor = StickyAssignor()
    counts = {"t": partitions}
    first = assignor.assign(counts, [Member(f"m{i}", ("t",)) for i in range(before)])
    again = [
        Member(f"m{i}", ("t",), user_data=assignor.user_data(first.get(f"m{i}", []), 5) if i < before else None)
        for i in range(after)
    ]
    second = assignor.assign(counts, again)
    sizes = [len(tps) for tps in second.values()]
    assert max(sizes) - min(sizes) <= 1
    for i in range(min(before, after)):
        kept = set(first[f"m{i}"]) & set(second[f"m{i}"])
        assert len(kept) >= min(len(first[f"m{i}"]), partitions // after)


def test_claim_of_the_later_generation_wins() -> None:
    assignor = CooperativeStickyAssignor()
    claim = (TopicPartition("t", 0), TopicPartition("t", 1))
    old = Member("m0", ("t",), owned=claim, generation=3)
    new = Member("m1", ("t",), owned=claim[:1], generation=4)
    result = assignor.assign({"t": 2}, [old, new])
    assert TopicPartition("t", 0) not in result["m0"]
    assert result["m0"] == [TopicPartition("t", 1)]


def test_cooperative_sticky_omits_partitions_that_move() -> None:
    assignor = CooperativeStickyAssignor()
    owned = tuple(TopicPartition("t", p) for p in range(4))
    result = assignor.assign({"t": 4}, [Member("m0", ("t",), owned=owned, generation=1), Member("m1", ("t",))])
    assert len(result["m0"]) == 2
    assert result["m1"] == []


def test_static_members_sort_first_by_instance_id() -> None:
    group = [Member("a", ("t",)), Member("z", ("t",), instance_id="1"), Member("y", ("t",), instance_id="2")]
    assert RangeAssignor().assign({"t": 3}, group) == {
        "z": [TopicPartition("t", 0)], "y": [TopicPartition("t", 1)], "a": [TopicPartition("t", 2)],
    }  # fmt: skip


def test_invalid_user_data_claims_nothing() -> None:
    result = StickyAssignor().assign({"t": 2}, [Member("a", ("t",), user_data=b"\xff\x00")])
    assert len(result["a"]) == 2
