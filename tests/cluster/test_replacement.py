"""`ottla broker replace`, `remove` and `drain` to their end, while clients of three kinds write and read."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Consumer
from ottla.clients.admin import NewTopic
from ottla.common.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests import deadlines
from tests.chaos.cluster_load import (
    PARTITIONS,
    TOPIC,
    IdempotentWriter,
    LibrdkafkaWriter,
    TransactionalWriter,
    Writer,
    check,
    stored,
)
from tests.chaos.migration import ALL, PROGRESS, Reader
from tests.clients.support import wait_until
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import start_tool, stop_process

from .processes import Cluster

JAVA = "java"
WAIT_S = 60.0
PAUSE_S = 3.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=4, controllers=1, properties={"min.insync.replicas": 2}) as cluster:
        yield cluster
        cluster.assert_no_traceback()


def ottla(cluster: Cluster, *words: str) -> None:
    assert main(["broker", *words, "--yes", "-b", cluster.bootstrap]) == 0


def start_java_producer(cluster: Cluster) -> subprocess.Popen[str]:
    """Start the verifiable producer, which sends ascending numbers, with the defaults of the Java producer."""
    config = cluster.directory / "producer.properties"
    config.write_text(f"retries={2**31 - 1}\nenable.idempotence=true\n")
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", JAVA, "--command-config", config)
    return start_tool("verifiable-producer", *where, "--throughput", 200)


def acknowledged(producer: subprocess.Popen[str]) -> list[int]:
    """Stop the verifiable producer; the values that it reported as acknowledged."""
    producer.send_signal(signal.SIGTERM)
    out, _ = producer.communicate(timeout=WAIT_S)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    errors = [event for event in events if event["name"] == "producer_send_error"]
    assert not errors, errors[:2]
    return sorted(int(event["value"]) for event in events if event["name"] == "producer_send_success")


def values_of(bootstrap: str, topic: str) -> list[int]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[topic, 0]  # type: ignore[index]
        values: list[int] = []
        deadline = time.monotonic() + WAIT_S
        while consumer.position((topic, 0)) < end:  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{len(values)} values"
            values += [int(record.value or b"") for record in consumer.poll(0.5)]
    return values


@pytest.mark.jvm
@pytest.mark.timeout(240)
def test_broker_is_replaced_and_removed_under_clients_of_three_kinds(cluster: Cluster) -> None:
    if missing := missing_for_jvm():
        (pytest.fail if in_ci() else pytest.skip)(missing)
    readers = [Reader(f"group-{each}", each, cluster.bootstrap) for each in ("classic", "consumer")]
    writers: list[Writer] = [
        IdempotentWriter("ottla", cluster.bootstrap),
        LibrdkafkaWriter("librdkafka", cluster.bootstrap),
        TransactionalWriter("transactions", cluster.bootstrap, seed=1),
    ]
    clients = (*writers, *readers)

    def progress() -> None:
        counts = [count(client) for client in clients]
        wait_until(
            lambda: all(count(client) > old + PROGRESS for client, old in zip(clients, counts, strict=True)),
            f"all clients make progress after {counts}",
            WAIT_S,
        )

    # The new broker must have no replicas yet, also not of the internal topics.
    assert cluster.stop_node(4) == 0
    with cluster.admin() as admin:
        admin.create_topics(
            [
                NewTopic(TOPIC, assignments={index: [(index + i) % 3 + 1 for i in range(3)] for index in range(4)}),
                NewTopic(JAVA, assignments={0: [3, 1, 2]}),
            ]
        )
        for reader in readers:
            admin.alter_group_offsets(reader.group, dict.fromkeys(ALL, 0))
        java = start_java_producer(cluster)
    try:
        for client in clients:
            client.start()
        progress()
        wait_until(lambda: len(values_of(cluster.bootstrap, JAVA)) > PROGRESS, "the Java producer writes", WAIT_S)
        cluster.start_node(4)
        ottla(cluster, "replace", "3", "4")
        progress()
        assert cluster.stop_node(3) == 0
        ottla(cluster, "remove", "3")
        progress()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert {each.node_id for each in admin.describe_cluster(include_fenced=True).brokers} == {1, 2, 4}
            found = admin.describe_topics([TOPIC, JAVA, OFFSETS_TOPIC, TRANSACTIONS_TOPIC]).values()
            assert {node for topic in found for each in topic.partitions for node in each.replicas} == {1, 2, 4}
        sent = acknowledged(java)
    finally:
        stop_process(java)
        for client in clients:
            client.stop()
        for client in clients:
            client.join(WAIT_S)
    assert not any(client.is_alive() for client in clients)
    check(writers, stored(cluster.bootstrap))
    assert all(reader.problems == [] for reader in readers), [reader.problems for reader in readers]
    assert len(sent) > PROGRESS
    assert values_of(cluster.bootstrap, JAVA)[: len(sent)] == sent


def count(client: Writer | Reader) -> int:
    return client.values.total() if isinstance(client, Reader) else len(client.acknowledged)


def test_drain_waits_for_a_broker_that_lags(cluster: Cluster) -> None:
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={index: [4, 1] for index in range(PARTITIONS)})])
        writer = IdempotentWriter("ottla", cluster.bootstrap)
        writer.start()
        try:
            wait_until(lambda: len(writer.acknowledged) > PROGRESS, "the writer writes", WAIT_S)
            cluster.pause(2)
            resumed = threading.Timer(PAUSE_S, cluster.resume, [2])
            resumed.start()
            began_s = time.monotonic()
            ottla(cluster, "drain", "4")
            took_s = time.monotonic() - began_s
            deadlines.join(resumed, "the resumption of the broker")
        finally:
            writer.stop()
            writer.join(WAIT_S)
        replicas = [each.replicas for each in admin.describe_topic(TOPIC).partitions]
    assert not any(4 in nodes for nodes in replicas)
    assert any(2 in nodes for nodes in replicas), "the broker that lagged has replicas"
    assert took_s > PAUSE_S - 1, "a move ends only when the new replica is in sync"
    check([writer], stored(cluster.bootstrap))
