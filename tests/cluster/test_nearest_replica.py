"""Consumers with client.rack read from the replica in their rack (KIP-392), and from the leader when that one dies."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from ottla.clients import Consumer, Producer, Record, TopicPartition
from ottla.clients.admin import NewTopic
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import tool

from .processes import Cluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
NEAREST = 2
WAIT_S = 30.0


def test_consumer_reads_from_its_rack_and_survives_its_replica(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, properties={"replica.selector.class": SELECTOR})
    for node_id, node in cluster.nodes.items():
        node.settings["broker.rack"] = f"rack-{node_id}"
    with cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic("t", len(PARTITIONS), 3)])
        leaders = [cluster.leader(*tp) for tp in PARTITIONS]
        produce(cluster, range(30))
        with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", client_rack=f"rack-{NEAREST}"
        ) as consumer:
            consumer.assign(PARTITIONS)
            records: list[Record] = []
            read(consumer, records, 30)
            positions = consumer._client.core.fetch.positions
            preferred = [positions.of(tp).preferred.node for tp in PARTITIONS]
            assert preferred == [-1 if leader == NEAREST else NEAREST for leader in leaders]
            cluster.kill(NEAREST)
            produce(cluster, range(30, 60))
            read(consumer, records, 60)
            assert [positions.of(tp).preferred.node for tp in PARTITIONS] == [-1] * len(PARTITIONS)
        assert sorted(int(record.value or b"") for record in records) == list(range(60))


VALUES, VALUE_BYTES = 1_000, 1_000
# Metadata, a few fetches that the leader answers with the preferred replica, no records.
MOST_FROM_LEADER = 50_000


@pytest.mark.jvm
def test_leader_sends_no_records_to_consumers_in_the_rack_of_a_follower(tmp_path: Path) -> None:
    if missing := missing_for_jvm():
        (pytest.fail if in_ci() else pytest.skip)(missing)
    cluster = Cluster(tmp_path, properties={"replica.selector.class": SELECTOR})
    for node_id, node in cluster.nodes.items():
        node.settings["broker.rack"] = f"rack-{node_id}"
    with cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic("t", assignments={0: [1, NEAREST, 3]})])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for sent in [producer.send("t", bytes(VALUE_BYTES)) for _ in range(VALUES)]:
                sent.result(WAIT_S)
        clients: tuple[Callable[[Cluster], dict[int, int]], ...] = (received_by_java, received_by_librdkafka)
        for client in clients:
            received = client(cluster)
            assert received[NEAREST] > VALUES * VALUE_BYTES, f"{client.__name__}: {received}"
            assert received[1] < MOST_FROM_LEADER, f"{client.__name__}: {received}"


def received_by_java(cluster: Cluster) -> dict[int, int]:
    """Read with the Java consumer; the bytes from each node."""
    config = cluster.directory / "consumer.properties"
    config.write_text(f"client.rack=rack-{NEAREST}\nauto.offset.reset=earliest\n")
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", "t", "--command-config", config)
    done = tool("consumer-perf-test", *where, "--num-records", VALUES, "--print-metrics")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"incoming-byte-total:\{.*node-id=node-(\d+)\} *: ([\d.]+)", done.stdout)
    return {int(node): int(float(size)) for node, size in found}


def received_by_librdkafka(cluster: Cluster) -> dict[int, int]:
    """Read with librdkafka; the bytes from each node."""
    received: dict[int, int] = {}

    def note(text: str) -> None:
        received.update({row["nodeid"]: row["rxbytes"] for row in json.loads(text)["brokers"].values()})

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "librdkafka",
            "client.rack": f"rack-{NEAREST}",
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        count, deadline = 0, time.monotonic() + WAIT_S
        while count < VALUES or received.get(NEAREST, 0) < VALUES * VALUE_BYTES:
            assert time.monotonic() < deadline, f"{count} of {VALUES} records; {received}"
            count += consumer.poll(0.5) is not None
    finally:
        consumer.close()
    return received


def produce(cluster: Cluster, values: range) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for sent in [producer.send("t", b"%d" % value, partition=value % len(PARTITIONS)) for value in values]:
            sent.result(WAIT_S)


def read(consumer: Consumer, records: list[Record], count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.5)
