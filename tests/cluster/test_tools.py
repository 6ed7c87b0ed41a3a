"""`ottla cluster`, `ottla broker` and the moves of `ottla topic` on three brokers, of Ottla and of stock Kafka.

The tests of one kind of brokers share a cluster; each deletes its topics.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer
from ottla.clients.admin import NewTopic, OffsetSpec
from ottla.common.ids import TopicPartition
from tests.clients.support import wait_until
from tests.peers.kafka import StockKafka

from .processes import Cluster

Run = Callable[..., tuple[int, str, str]]
RECORDS = 300


@pytest.fixture(
    scope="module",
    params=["ottla", pytest.param("stock", marks=[pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka")])],
)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("brokers")
    if request.param == "stock":
        with StockKafka(directory, brokers=3) as stock:
            yield stock.bootstrap
    else:
        with Cluster(directory / "cluster") as cluster:
            yield cluster.bootstrap
            cluster.assert_no_traceback()


@pytest.fixture
def ottla(bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        return code, *capsys.readouterr()

    return run


def facts(ottla: Run) -> dict[str, Any]:
    code, out, err = ottla("cluster", "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.timeout(180)
def test_brokers_are_drained_and_filled_again(bootstrap: str, ottla: Run) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        assert ottla("topic", "create", "moved", "--replica-assignment", "1:2,2:3,3:1", "-c", "min.insync.replicas=1")[
            0
        ] == (0)
        wait_until(lambda: len(admin.describe_topic("moved").partitions) == 3, "the topic is known")
        for number in range(RECORDS):
            producer.send("moved", b"%d" % number, partition=number % 3)
        producer.flush(30)

        def replicas() -> list[tuple[int, ...]]:
            return [each.replicas for each in admin.describe_topic("moved").partitions]

        code, out, err = ottla("broker", "drain", "3", "--dry-run", "--json")
        assert code == 0, err
        plan = {row["partition"]: row["after"] for row in map(json.loads, out.splitlines()) if row["topic"] == "moved"}
        assert plan == {1: [2, 1], 2: [2, 1]}
        code, out, err = ottla("broker", "drain", "3", "--yes", "--throttle", "50MiB")
        assert (code, "Broker 3 has no replicas" in err) == (0, True), err
        assert replicas() == [(1, 2), (2, 1), (2, 1)]
        assert next(row for row in facts(ottla)["brokers"] if row["node_id"] == 3)["replica_count"] == 0
        assert facts(ottla)["moves"] == []
        assert ottla("topic", "reassign", "--status")[2] == "No partition is moving.\n"
        throttles = ottla("config", "list", "topic", "moved", "--json")[1]
        assert "throttled" not in throttles

        assert ottla("topic", "reassign", "moved", "--brokers", "3,1", "--yes")[0] == 0
        assert {node_id for nodes in replicas() for node_id in nodes} == {1, 3}
        assert ottla("topic", "elect-leaders", "moved")[0] == 0
        wait_until(
            lambda: all(each.leader == each.replicas[0] for each in admin.describe_topic("moved").partitions),
            "the preferred replicas lead",
        )
        code, _, err = ottla("broker", "replace", "3", "1")
        assert (code, "is on both brokers" in err) == (1, True)
        code, _, err = ottla("broker", "remove", "3")
        assert (code, "broker 3 is up" in err) == (1, True)
        code, _, err = ottla("broker", "drain", "7")
        assert (code, "there is no broker 7" in err) == (1, True)
        ends = admin.list_offsets({TopicPartition("moved", partition): OffsetSpec.LATEST for partition in range(3)})
        assert sum(end.offset for end in ends.values()) == RECORDS
        admin.delete_topic("moved")


@pytest.mark.timeout(180)
def test_balance_evens_out_the_brokers_and_removes_its_throttle(bootstrap: str, ottla: Run) -> None:
    topic = "uneven"
    with Admin(bootstrap_servers=bootstrap) as admin, Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        admin.create_topics([NewTopic(topic, assignments={each: [1, 2] for each in range(6)})])
        for number in range(60):
            producer.send(topic, os.urandom(50_000), partition=number % 6)
        producer.flush(60)

        def replicas() -> list[tuple[int, ...]]:
            return [each.replicas for each in admin.describe_topic(topic).partitions]

        code, out, err = ottla("cluster", "balance", "--json")
        assert code == 0, err
        plan: dict[str, Any] = json.loads(out)
        assert {move["topic"] for move in plan["moves"]} == {topic}
        # About 3 MB on each of two brokers becomes about 2 MB on each of three.
        assert [broker["size"]["before"] > 2_500_000 for broker in plan["brokers"]] == [True, True, False]
        assert all(1_500_000 < broker["size"]["after"] < 2_600_000 for broker in plan["brokers"])
        assert replicas() == [(1, 2)] * 6, "a plan changes nothing"
        code, out, err = ottla("cluster", "balance", "--execute", "--yes", "--throttle", "20MiB", "--json")
        assert (code, json.loads(out)["moved"]) == (0, len(plan["moves"])), err
        expected = {move["partition"]: tuple(move["after"]) for move in plan["moves"]}
        assert replicas() == [expected.get(partition, (1, 2)) for partition in range(6)]
        assert not admin.list_partition_reassignments()
        for words in (("topic", topic), *(("broker", node) for node in "123")):
            assert "throttled" not in ottla("config", "list", *words, "--json")[1]
        assert json.loads(ottla("cluster", "balance", "--json")[1])["moves"] == []
        wait_until(
            lambda: {each.leader for each in admin.describe_topic(topic).partitions} == {1, 2, 3}, "each broker leads"
        )
        ends = admin.list_offsets({TopicPartition(topic, each): OffsetSpec.LATEST for each in range(6)})
        assert sum(end.offset for end in ends.values()) == 60
        admin.delete_topic(topic)


def test_partitions_in_trouble_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", cluster.bootstrap)
        for name, assignment, least in (("alone", "3", 1), ("pair", "1:3", 2), ("triple", "1:2:3", 1)):
            words = ["--replica-assignment", assignment, "-c", f"min.insync.replicas={least}"]
            assert main(["topic", "create", name, *words]) == 0
        cluster.kill(3)

        def states() -> dict[str, str]:
            capsys.readouterr()
            assert main(["cluster", "--json"]) == 0
            rows = json.loads(capsys.readouterr().out)["partitions"]
            return {row["topic"]: row["state"] for row in rows}

        expected = {"alone": "offline", "pair": "under min ISR", "triple": "under-replicated"}
        cluster.wait_until(lambda: states() == expected)
        assert main(["cluster", "--only", "partitions"]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()][1:] == ["alone", "pair", "triple"]
        cluster.start_node(3)
        cluster.wait_until(lambda: states() == {"pair": "at min ISR"})
