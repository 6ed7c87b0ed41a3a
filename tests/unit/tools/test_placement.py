"""Where replicas go when brokers are drained or replaced, and topics are spread."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.placement import Target, drained, replaced, spread


def replicas(*lists: list[int]) -> dict[TopicPartition, list[int]]:
    return {TopicPartition("t", index): nodes for index, nodes in enumerate(lists)}


FOUR = [Target(1), Target(2), Target(3), Target(4)]


def test_drained_broker_is_replaced_by_the_ones_with_the_fewest_replicas() -> None:
    moves = drained(replicas([1, 2], [2, 1], [3, 2], [2, 3]), {1}, FOUR)
    assert moves == {TopicPartition("t", 0): [4, 2], TopicPartition("t", 1): [2, 4]}


def test_replacement_is_in_another_rack_if_possible() -> None:
    targets = [Target(1, "a"), Target(2, "b"), Target(3, "b"), Target(4, "a")]
    assert drained(replicas([1, 2], [3, 2]), {1}, targets) == {TopicPartition("t", 0): [4, 2]}


def test_several_brokers_are_drained_at_a_time() -> None:
    assert drained(replicas([1, 2]), {1, 2}, FOUR) == {TopicPartition("t", 0): [3, 4]}


def test_partition_on_all_brokers_cannot_be_drained() -> None:
    with pytest.raises(Failure, match="t-0 has 3 replicas, and only 2 brokers would remain"):
        drained(replicas([1, 2, 3]), {3}, FOUR[:3])


def test_new_broker_takes_the_places_of_the_old_one() -> None:
    assert replaced(replicas([1, 2], [2, 3], [3, 1]), 1, 4) == {
        TopicPartition("t", 0): [4, 2],
        TopicPartition("t", 2): [3, 4],
    }
    with pytest.raises(Failure, match="t-1 is on both brokers"):
        replaced(replicas([1, 2], [1, 4]), 1, 4)


def test_topic_is_spread_evenly_over_the_given_brokers() -> None:
    moves = spread(replicas(*[[1]] * 6), FOUR[:3], 2)
    assert [nodes[0] for nodes in moves.values()] == [1, 2, 3, 1, 2, 3]
    assert sorted(nodes[1] for nodes in moves.values()) == [1, 1, 2, 2, 3, 3]
    assert spread(replicas([1], [2], [3]), FOUR[:3]) == {}
    with pytest.raises(Failure, match="needs 5 replicas, and only 4 brokers"):
        spread(replicas([1]), FOUR, 5)


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    targets = [Target(1, "a"), Target(2, "a"), Target(3, "b"), Target(4, "b")]
    rack = {target.node_id: target.rack for target in targets}
    moves = spread(replicas(*[[9]] * 8), targets, 2)
    assert sum(rack[a] != rack[b] for a, b in moves.values()) >= 4


NODES = st.integers(1, 6)
CLUSTERS = st.lists(st.lists(NODES, min_size=1, max_size=3, unique=True), min_size=1, max_size=12)
RACKS = st.lists(st.sampled_from([None, "a", "b"]), min_size=6, max_size=6)


def targets_in(racks: list[str | None]) -> list[Target]:
    return [Target(node_id, rack) for node_id, rack in enumerate(racks, 1)]


@given(lists=CLUSTERS, racks=RACKS, leaving=st.sets(NODES, min_size=1, max_size=3))
def test_drained_partitions_keep_their_number_of_replicas_and_every_other_replica(
    lists: list[list[int]], racks: list[str | None], leaving: set[int]
) -> None:
    before = replicas(*lists)
    moves = drained(before, leaving, targets_in(racks))
    assert moves.keys() == {partition for partition, nodes in before.items() if set(nodes) & leaving}
    for partition, nodes in moves.items():
        assert len(set(nodes)) == len(nodes) == len(before[partition])
        assert not set(nodes) & leaving
        stay = [(place, node_id) for place, node_id in enumerate(before[partition]) if node_id not in leaving]
        assert all(nodes[place] == node_id for place, node_id in stay)


@given(lists=CLUSTERS, racks=RACKS, factor=st.one_of(st.none(), st.integers(1, 6)))
def test_spread_replicas_are_distinct_and_leaders_are_balanced(
    lists: list[list[int]], racks: list[str | None], factor: int | None
) -> None:
    before = replicas(*lists)
    after = before | spread(before, targets_in(racks), factor)
    for partition, nodes in after.items():
        assert len(set(nodes)) == len(nodes) == (factor or len(before[partition]))
    leaders = Counter(nodes[0] for nodes in after.values())
    assert max(leaders.values()) - min(leaders[node_id] for node_id in range(1, 7)) <= 1


@given(lists=CLUSTERS, old=NODES)
def test_replaced_broker_hands_over_all_of_its_places(lists: list[list[int]], old: int) -> None:
    before = replicas(*lists)
    after = before | replaced(before, old, 7)
    assert not any(old in nodes for nodes in after.values())
    assert before | replaced(after, 7, old) == before
