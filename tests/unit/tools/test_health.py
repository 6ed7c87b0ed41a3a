"""`ottla health`: when a node is ready, and when it may stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.clients import admin as api
from ottla.common.ids import TopicPartition
from ottla.tools.health import CAUGHT_UP_WITHIN_MS, Facts, obstacles, readiness

NOW_MS = 1_000_000


def partition(replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3)) -> api.PartitionDescription:
    return api.PartitionDescription(0, isr[0] if isr else None, 1, replicas, isr, ())


def quorum(*behind: int, voters: int = 3) -> api.Quorum:
    replicas = tuple(
        api.QuorumReplica(node, 10, NOW_MS, NOW_MS - (CAUGHT_UP_WITHIN_MS + 1 if node in behind else 0))
        for node in range(1, voters + 1)
    )
    return api.Quorum(2, 1, 10, replicas, ())


def facts(*partitions: api.PartitionDescription, min_isr: int = 2, behind: tuple[int, ...] = ()) -> Facts:
    brokers = tuple(api.BrokerDescription(node, "h", 9092, None, is_fenced=False) for node in (1, 2, 3))
    topics = {TopicPartition(f"t{number}", 0): each for number, each in enumerate(partitions)}
    settings = {name.topic: min_isr for name in topics}
    return Facts(1, NOW_MS, api.ClusterDescription("c", 2, brokers), topics, settings, quorum(*behind))


def test_node_in_sync_is_ready_and_may_stop() -> None:
    good = facts(partition(), partition((2, 3), (2,)))
    assert readiness(good).state == "ready"
    assert obstacles(good) == ()


def test_node_that_is_fenced_or_unknown_is_starting() -> None:
    good = facts(partition())
    fenced = tuple(replace(each, is_fenced=each.node_id == 1) for each in good.cluster.brokers)
    assert readiness(replace(good, cluster=replace(good.cluster, brokers=fenced))).state == "starting"
    assert readiness(replace(good, node=9)).state == "starting"


def test_node_with_a_failed_disk_is_broken() -> None:
    directory = api.LogDirectory("/data", {}, -1, -1, error="KAFKA_STORAGE_ERROR")
    assert readiness(replace(facts(partition()), directories=(directory,))).state == "broken"


def test_node_with_replicas_out_of_sync_is_catching_up_and_must_not_stop() -> None:
    behind = facts(partition(isr=(2, 3)))
    assert readiness(behind).state == "catching_up"
    assert "t0-0" in readiness(behind).reasons[0]
    assert obstacles(behind)


@pytest.mark.parametrize(
    ("each", "min_isr", "may_stop"),
    [
        (partition(isr=(1, 2)), 2, False),  # another node is behind
        (partition((1, 2), (1, 2)), 2, True),  # unwritable without any of its nodes
        (partition((1, 2), (1,)), 1, False),
        (partition((1,), (1,)), 1, True),
        (partition((2, 3), (2,)), 2, True),  # no replica on this node
    ],
)
def test_node_stops_only_if_its_partitions_stay_writable(
    each: api.PartitionDescription, min_isr: int, may_stop: bool
) -> None:
    assert (obstacles(facts(each, min_isr=min_isr)) == ()) is may_stop


def test_voter_stops_only_if_the_others_are_a_majority() -> None:
    (reason,) = obstacles(facts(partition(), behind=(3,)))
    assert reason == "the metadata quorum needs 2 other voters, and these are not caught up: 3"
    # The clock of the leader's own row stands still in some versions.
    assert obstacles(facts(partition(), behind=(2,))) == ()
    assert obstacles(replace(facts(partition(), behind=(3,)), node=4)) == ()
    assert obstacles(replace(facts(partition()), quorum=quorum(1, 2, voters=2))) == ()
