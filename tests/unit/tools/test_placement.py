"""Where replicas go when brokers are drained or replaced, and topics are spread."""

from __future__ import annotations

import pytest

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
