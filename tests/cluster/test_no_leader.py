"""Partitions without a leader: what the commands show, and that the steps of docs/cluster.md bring a leader back."""

from __future__ import annotations

import json
import shutil

import pytest

from ottla.cli.main import main
from ottla.clients import Producer
from ottla.clients.admin import NewTopic

from .conftest import Clusters
from .processes import Cluster

TOPIC = "t"
WAIT_S = 20.0
SEPARATE = {
    "brokers": 3,
    "controllers": 1,
    "properties": {"min.insync.replicas": 1, "broker.session.timeout.ms": 4000, "broker.heartbeat.interval.ms": 500},
}


class Commands:
    """The commands, run against the brokers that are up."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster, self.capsys = cluster, capsys

    def run(self, *words: str) -> str:
        self.capsys.readouterr()
        up = [node for node in self.cluster.nodes.values() if node.is_broker and node.is_running]
        assert main([*words, "-b", ",".join(node.bootstrap for node in up)]) == 0
        return self.capsys.readouterr().out

    def partition(self) -> tuple[int | None, list[int], str | None]:
        """(leader, brokers that cannot lead, next step), in which both commands agree."""
        [row] = json.loads(self.run("topic", "describe", TOPIC, "--json"))["partitions"]
        found = [each for each in json.loads(self.run("cluster", "--json"))["partitions"] if each["topic"] == TOPIC]
        assert row["way_out"] == (found[0]["way_out"] if found else None)
        return row["leader"], row["cannot_lead"], row["way_out"]

    def wait(self, leader: int | None, stuck: list[int], step: str | None) -> None:
        found: list[object] = []

        def is_shown() -> bool:
            found[:] = self.partition()
            return found == [leader, stuck, step]

        try:
            self.cluster.wait_until(is_shown, WAIT_S)
        except TimeoutError as error:
            raise AssertionError(f"{found} is shown, not {[leader, stuck, step]}") from error


def with_topic(cluster: Cluster, *replicas: int) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={0: list(replicas)})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send(TOPIC, b"value").result(WAIT_S)


def test_broker_with_all_records_is_named_and_leads_after_its_start(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = clusters(**SEPARATE)
    commands = Commands(cluster, capsys)
    with_topic(cluster, 1, 2)
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.in_sync(TOPIC) == [1])
    assert cluster.stop_node(1) == 0
    commands.wait(None, [], "start broker 1")
    assert 'docs/cluster.md, "No leader"' not in commands.run("topic", "describe", TOPIC), "notes go to standard error"
    cluster.start_node(1)
    commands.wait(1, [], None)
    cluster.assert_no_traceback()


def test_lost_log_is_given_up_only_on_request(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = clusters(**SEPARATE)
    commands = Commands(cluster, capsys)
    with_topic(cluster, 1)
    assert cluster.stop_node(1) == 0
    node = cluster.nodes[1]
    kept = node.directory / "kept"
    shutil.move(node.data, kept)
    node.format(cluster.cluster_id)
    cluster.start_node(1)
    step = "restore the log directory of broker 1, or give up its records with elect-leaders --unclean"
    commands.wait(None, [1], step)
    # The directory returns.
    assert cluster.stop_node(1) == 0
    shutil.rmtree(node.data)
    shutil.move(kept, node.data)
    cluster.start_node(1)
    commands.wait(1, [], None)
    [row] = json.loads(commands.run("topic", "describe", TOPIC, "--json"))["partitions"]
    assert row["records"] == 1
    # It is lost for good.
    assert cluster.stop_node(1) == 0
    shutil.rmtree(node.data)
    node.format(cluster.cluster_id)
    cluster.start_node(1)
    commands.wait(None, [1], step)
    commands.run("topic", "elect-leaders", TOPIC, "--unclean", "--yes")
    commands.wait(1, [], None)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        assert producer.send(TOPIC, b"value").result(WAIT_S).offset == 0
    cluster.assert_no_traceback()


def test_unclean_election_takes_a_replica_that_is_up(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = clusters(**SEPARATE)
    commands = Commands(cluster, capsys)
    with_topic(cluster, 1, 2)
    cluster.kill(2)
    cluster.wait_until(lambda: cluster.in_sync(TOPIC) == [1])
    cluster.kill(1)
    cluster.wait_until(lambda: cluster.leader(TOPIC) == -1)
    commands.wait(None, [], "start broker 1")
    cluster.start_node(2)
    commands.wait(None, [], "start broker 1")
    commands.run("topic", "elect-leaders", TOPIC, "--unclean", "--yes")
    commands.wait(2, [], None)
    cluster.assert_no_traceback()


def test_each_broker_names_the_leader_of_the_quorum_as_controller(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = clusters()
    for _ in range(2):
        active = cluster.active_controller()
        for node_id in cluster.running:
            words = ["cluster", "-b", cluster.nodes[node_id].bootstrap]
            capsys.readouterr()
            assert main([*words, "--json"]) == 0
            facts = json.loads(capsys.readouterr().out)
            assert facts["controller"] == active
            assert [row["node_id"] for row in facts["brokers"] if row["controller"]] == [active]
            assert main(words) == 0
            assert f"controller {active}, " in capsys.readouterr().out
        if len(cluster.running) == len(cluster.nodes):
            cluster.kill(active)
            cluster.wait_until(lambda gone=active: cluster.active_controller() not in (gone, -1))  # type: ignore[misc]
    cluster.assert_no_traceback()
