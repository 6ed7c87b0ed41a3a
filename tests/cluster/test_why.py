"""`ottla cluster why`: each trouble is constructed with real processes, and must be named with its next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Producer, TopicPartition
from ottla.clients.admin import ConfigResource, NewTopic

from .conftest import Clusters
from .processes import Cluster

Explained = Callable[..., dict[str, dict[str, Any]]]
QUICK = {"replica.lag.time.max.ms": 2000, "broker.session.timeout.ms": 3000}


@pytest.fixture
def checked(capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, Any]]:
    """Run `ottla check` against a broker; returns its report."""

    def run(bootstrap: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["check", "--json", "-b", bootstrap]) == 1
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        return report

    return run


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explained:
    """Run the command against the brokers that are up; returns the findings by code."""

    def run(cluster: Cluster, watch: float = 0) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        up = [each for each in cluster.nodes.values() if each.is_broker and each.is_running and not each.paused]
        words = ["cluster", "why", "--json", "--watch", str(watch), "-b", ",".join(each.bootstrap for each in up)]
        assert main(words) == 0, capsys.readouterr().err
        found: dict[str, dict[str, Any]] = {}
        for each in json.loads(capsys.readouterr().out)["findings"]:
            found.setdefault(each["code"], each | {"subjects": []})["subjects"].append(each["subject"])
        return found

    return run


def create(cluster: Cluster, name: str, *replicas: int, least: int = 1) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name, assignments={0: list(replicas)}, config={"min.insync.replicas": least})])


def write(cluster: Cluster, topic: str, count: int, size: int = 100_000, **settings: Any) -> None:
    up = ",".join(each.bootstrap for each in cluster.nodes.values() if each.is_broker and each.is_running)
    with Producer(bootstrap_servers=up, acks=1, **settings) as producer:
        for _ in range(count):
            producer.send(topic, b"x" * size, partition=0)


def test_broker_that_is_down_is_the_cause_of_each_trouble(clusters: Clusters, explained: Explained) -> None:
    cluster = clusters(properties=QUICK)
    for name, replicas, least in (("alone", [3], 1), ("pair", [1, 3], 2), ("led", [3, 1], 1)):
        create(cluster, name, *replicas, least=least)
    write(cluster, "led", 1)
    cluster.wait_until(lambda: not explained(cluster))
    cluster.kill(3)
    wanted = {"offline_partition", "under_min_isr", "broker_down", "voter_behind"}
    cluster.wait_until(lambda: explained(cluster).keys() >= wanted)
    found = explained(cluster)
    assert found["offline_partition"]["subject"] == "alone-0"
    assert "all of its replicas are down (broker 3)" in found["offline_partition"]["cause"]
    assert found["offline_partition"]["next_step"].startswith("Start broker 3")
    assert found["under_min_isr"]["subject"] == "pair-0"
    assert "broker 3 is not in sync, and min.insync.replicas is 2" in found["under_min_isr"]["cause"]
    assert "ottla broker drain 3" in found["broker_down"]["next_step"]
    assert "without it no other may fail" in found["voter_behind"]["cause"]
    with cluster.admin() as admin:
        admin.alter_partition_reassignments({TopicPartition("led", 0): [3, 1, 2]})
        admin.alter_partition_reassignments({TopicPartition("pair", 0): [1, 3, 2]})
        create(cluster, "moving", 1)
        admin.alter_partition_reassignments({TopicPartition("moving", 0): [3]})
    moving = explained(cluster, 0.5)["move_stuck"]
    assert moving["subject"] == "moving-0"
    assert "waits for broker 3" in moving["cause"]
    cluster.start_node(3)
    cluster.wait_until(lambda: explained(cluster).keys() == {"leaders_off_balance"})
    balance = explained(cluster)["leaders_off_balance"]
    assert (balance["subject"], "led-0" in balance["cause"]) == ("broker 3", True)
    assert main([*balance["next_step"].replace("'", "").split()[1:], "-b", cluster.bootstrap]) == 0
    cluster.wait_until(lambda: not explained(cluster))


def test_quorum_without_majority_is_named(clusters: Clusters, explained: Explained) -> None:
    cluster = clusters(brokers=1, controllers=3, properties=QUICK)
    for node in (101, 102):
        cluster.kill(node)
    found: list[dict[str, dict[str, Any]]] = []

    def is_named() -> bool:
        found.append(explained(cluster))  # it waits for a controller, for many seconds
        return "no_controller" in found[-1]

    cluster.wait_until(is_named)
    assert found[-1]["no_controller"]["severity"] == "critical"


def throttle(cluster: Cluster, topic: str, rate: int) -> None:
    changes: dict[ConfigResource, dict[str, object]] = {
        ConfigResource.broker(node): dict.fromkeys(
            ("leader.replication.throttled.rate", "follower.replication.throttled.rate"), rate
        )
        for node in (1, 2, 3)
    }
    names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    changes[ConfigResource.topic(topic)] = dict.fromkeys(names, "*")
    with cluster.admin() as admin:
        admin.alter_configs(changes)


def test_followers_that_are_throttled_slow_or_silent_differ(
    clusters: Clusters, explained: Explained, checked: Callable[[str], dict[str, Any]]
) -> None:
    cluster = clusters(
        brokers=3,
        controllers=1,
        properties={**QUICK, "broker.session.timeout.ms": 60_000, "replica.fetch.max.bytes": 1000},
    )
    create(cluster, "t", 1, 3)
    write(cluster, "t", 1)
    throttle(cluster, "t", 300_000)
    cluster.kill(3)
    cluster.wait_until(lambda: cluster.in_sync("t") == [1])
    write(cluster, "t", 300)
    cluster.start_node(3)
    cluster.wait_until(lambda: "replica_throttled" in explained(cluster, 1))
    found = explained(cluster, 3)["replica_throttled"]
    assert found["subject"] == "broker 3"
    assert "remain" in found["cause"]
    assert "ottla config set broker 3" in found["next_step"]
    cluster.pause(3)
    silent = explained(cluster, 0.5)
    assert "does not answer" in silent["broker_silent"]["cause"]
    # The other brokers are explained nevertheless.
    assert silent["broker_silent"]["subjects"] == ["broker 3"]
    report = checked(cluster.nodes[1].bootstrap)
    assert report["unknown"].keys() == {"settings of broker 3", "features of broker 3"}
    assert {"security", "versions"} <= set(report["unknown_checks"])
    cluster.resume(3)


@pytest.mark.long
def test_follower_that_catches_up_has_a_rate(clusters: Clusters, explained: Explained) -> None:
    # One batch for each fetch: a slow follower.
    cluster = clusters(brokers=3, controllers=1, properties={**QUICK, "replica.fetch.max.bytes": 1})
    create(cluster, "t", 1, 3)
    write(cluster, "t", 1)
    cluster.kill(3)
    cluster.wait_until(lambda: cluster.in_sync("t") == [1])
    write(cluster, "t", 30_000, 100, batch_size=0)
    cluster.start_node(3)
    found: dict[str, dict[str, Any]] = {}

    def is_named() -> bool:
        found.update(explained(cluster, 0.3))
        return "replica_catching_up" in found

    cluster.wait_until(is_named)
    assert "/s" in found["replica_catching_up"]["cause"]
    cluster.wait_until(lambda: cluster.in_sync("t") == [1, 3])


def test_old_feature_level_is_named(tmp_path: Path, explained: Explained) -> None:
    cluster = Cluster(tmp_path / "cluster", brokers=1)
    cluster._format_options = ["--release-version", "4.0-IV3"]
    with cluster:
        found = explained(cluster)["feature_behind"]
        assert "metadata.version is 4.0-IV3" in found["cause"]
        assert found["severity"] == "info"
