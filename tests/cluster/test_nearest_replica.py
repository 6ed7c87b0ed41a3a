"""Consumers with client.rack read from the replica in their rack (KIP-392), and from the leader when that one dies."""

from __future__ import annotations

import time
from pathlib import Path

from ottla.clients import Consumer, Producer, Record, TopicPartition
from ottla.clients.admin import NewTopic

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
            preferred = [positions.of(tp).preferred for tp in PARTITIONS]
            assert preferred == [-1 if leader == NEAREST else NEAREST for leader in leaders]
            cluster.kill(NEAREST)
            produce(cluster, range(30, 60))
            read(consumer, records, 60)
            assert [positions.of(tp).preferred for tp in PARTITIONS] == [-1] * len(PARTITIONS)
        assert sorted(int(record.value or b"") for record in records) == list(range(60))


def produce(cluster: Cluster, values: range) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for sent in [producer.send("t", b"%d" % value, partition=value % len(PARTITIONS)) for value in values]:
            sent.result(WAIT_S)


def read(consumer: Consumer, records: list[Record], count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.5)
