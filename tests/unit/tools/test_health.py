"""`ottla health`: when a node is ready, and when it may stop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.clients import admin as api
from ottla.clients.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.tools.health import CAUGHT_UP_WITHIN_MS, MIN_ISR, Facts, obstacles, read, read_for_stop, readiness

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
    directory = api.LogDirectory("/data", -1, -1, {}, error="KAFKA_STORAGE_ERROR")
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
    others = quorum(5, voters=5).voters[1:]  # this node is not a voter
    assert obstacles(replace(facts(partition()), quorum=api.Quorum(2, 1, 10, others, ()))) == ()
    assert obstacles(replace(facts(partition()), quorum=quorum(1, 2, voters=2))) == ()


def without_broker(good: Facts, *, is_fenced: bool) -> Facts:
    """The facts of node 1 as a fenced broker, or as a dedicated controller."""
    brokers = tuple(replace(each, is_fenced=each.node_id == 1) for each in good.cluster.brokers)
    return replace(good, cluster=replace(good.cluster, brokers=brokers if is_fenced else brokers[1:]), partitions={})


@pytest.mark.parametrize("is_fenced", [True, False])
def test_node_without_partitions_stops_only_as_a_voter_that_the_quorum_spares(is_fenced: bool) -> None:
    assert obstacles(without_broker(facts(), is_fenced=is_fenced)) == ()
    assert "quorum needs 2" in obstacles(without_broker(facts(behind=(3,)), is_fenced=is_fenced))[0]
    observer = replace(
        without_broker(facts(), is_fenced=is_fenced), quorum=api.Quorum(2, 1, 10, quorum().voters[1:], ())
    )
    (reason,) = obstacles(observer)
    assert reason.endswith("and it is not a voter of the metadata quorum")
    assert obstacles(replace(observer, quorum=None))


def test_node_does_not_stop_without_knowing_the_quorum() -> None:
    assert obstacles(replace(facts(partition()), quorum=None)) == ("the metadata quorum is not known",)


def test_node_with_replicas_that_the_user_cannot_describe_must_not_stop() -> None:
    replicas = {TopicPartition(topic, 0): api.ReplicaDescription(1, 0, False) for topic in ("t0", "__cluster_metadata")}
    seen = replace(facts(partition()), directories=(api.LogDirectory("/data", -1, -1, replicas),))
    assert obstacles(seen) == ()
    (reason,) = obstacles(replace(seen, partitions={}))
    assert reason.startswith("1 replicas of this node are not visible to this user")
    assert reason.endswith("t0-0")


class Admin:
    """Answers for node 1 with two topics, and lists its calls. `errors`: topics whose settings cannot be read."""

    def __init__(self, cluster: api.ClusterDescription, **errors: Exception) -> None:
        self.cluster = cluster
        self.errors = {api.ConfigResource.topic(name): error for name, error in errors.items()}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def answer(*arguments: Any, **options: Any) -> Any:
            assert options.pop("timeout_s") == 5.0
            self.calls.append(name)
            return getattr(self, f"_{name}")(*arguments, **options)

        return answer

    def _describe_cluster(self, include_fenced: bool) -> api.ClusterDescription:
        return self.cluster

    def _describe_topics(self, names: None) -> dict[str, api.TopicDescription]:
        return {name: api.TopicDescription(name, "", False, (partition(),)) for name in ("t0", "t1")}

    def _describe_log_dirs(self, nodes: list[int]) -> dict[int, tuple[api.LogDirectory, ...]]:
        return {1: (api.LogDirectory("/data", -1, -1, {}),)}

    def _describe_configs(self, resources: list[api.ConfigResource], names: list[str]) -> Any:
        assert names == [MIN_ISR]
        kind = api.ConfigType.INT
        entry = api.ConfigEntry(MIN_ISR, "2", api.ConfigSource.DEFAULT, kind, False, False, None, ())
        results = {each: {MIN_ISR: entry} for each in resources if each not in self.errors}
        if self.errors:
            raise api.PartialFailure.of(self.errors, results)  # type: ignore[arg-type]
        return results

    def _describe_quorum(self) -> api.Quorum:
        return quorum()


def read_from(admin: Any, *, for_stop: bool) -> Facts:
    async def run() -> Facts:
        found = await read(admin, 1, 5.0, NOW_MS)
        return await read_for_stop(admin, found, 5.0) if for_stop else found

    return asyncio.run(run())


def test_readiness_needs_neither_the_controller_nor_settings() -> None:
    admin = Admin(facts().cluster)
    assert readiness(read_from(admin, for_stop=False)).state == "ready"
    assert admin.calls == ["describe_cluster", "describe_topics", "describe_log_dirs"]
    assert obstacles(read_from(admin, for_stop=True)) == ()


def test_stop_of_a_fenced_broker_reads_the_quorum() -> None:
    admin = Admin(without_broker(facts(), is_fenced=True).cluster)
    assert read_from(admin, for_stop=True).quorum == quorum()
    assert admin.calls == ["describe_cluster", "describe_quorum"]


def test_topic_that_is_deleted_meanwhile_is_tolerated_and_other_errors_are_not() -> None:
    deleted = Admin(facts().cluster, t1=UnknownTopicOrPartition("gone"))
    assert read_from(deleted, for_stop=True).min_isr == {"t0": 2}
    with pytest.raises(api.PartialFailure):
        read_from(Admin(facts().cluster, t1=TopicAuthorizationFailed("no")), for_stop=True)
