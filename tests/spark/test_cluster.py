"""A query that reads and writes a cluster survives the death of each broker, and moves of its partitions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.clients import Consumer, Producer
from ottla.clients.admin import NewTopic
from ottla.common.ids import TopicPartition
from tests.cluster.processes import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, TARGET = "numbers", "copies"
PARTITIONS, PROGRESS = 2, 20
WAIT_S = 60
pytestmark = pytest.mark.timeout(300)


class Numbers(threading.Thread):
    """Sends numbers until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._brokers = bootstrap
        self._stopping = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(bootstrap_servers=self._brokers, acks="all") as producer:
            while not self._stopping.wait(0.02):
                producer.send(SOURCE, b"%d" % self.sent, partition=self.sent % PARTITIONS).result(WAIT_S)
                self.sent += 1

    def stop(self) -> int:
        """Return how many numbers were acknowledged, as all were."""
        self._stopping.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        return self.sent


def copies(cluster: Cluster) -> list[int]:
    """The committed numbers in the target."""
    places = [TopicPartition(TARGET, index) for index in range(PARTITIONS)]
    found: list[int] = []
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=cluster.bootstrap, **settings) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [int(record.value or b"") for record in consumer.poll(0.1)]
    return found


def test_query_survives_each_broker_and_moves_of_its_partitions(spark: SparkSession, tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        with cluster.admin() as admin:
            replicas = {index: [index % 3 + 1, (index + 1) % 3 + 1] for index in range(PARTITIONS)}
            admin.create_topics([NewTopic(topic, assignments=replicas) for topic in (SOURCE, TARGET)])
        numbers = Numbers(cluster.bootstrap)
        numbers.start()
        brokers = {"kafka.bootstrap.servers": cluster.bootstrap}
        rows = spark.readStream.format("ottla").options(**brokers, subscribe=SOURCE, startingOffsets="earliest").load()
        query = (
            rows.select("value", "partition")
            .writeStream.format("ottla")
            .options(**brokers, topic=TARGET, exactlyOnce="true", checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )

        def progress() -> None:
            """Wait for results that were read and written after this call."""
            wanted = numbers.sent + PROGRESS
            cluster.wait_until(lambda: not query.isActive or max(copies(cluster), default=0) > wanted, WAIT_S)
            assert query.isActive, query.exception()

        try:
            progress()
            for node_id in (1, 2, 3):
                cluster.kill(node_id)
                progress()
                cluster.start_node(node_id)
                for topic in (SOURCE, TARGET):
                    for index in range(PARTITIONS):
                        cluster.wait_until(lambda at=(topic, index): len(cluster.in_sync(*at)) == 2)  # type: ignore[misc]
            with cluster.admin() as admin:
                moved = {TopicPartition(topic, 0): [3, 1] for topic in (SOURCE, TARGET)}
                admin.alter_partition_reassignments(moved)
            progress()
            sent = numbers.stop()
            query.processAllAvailable()
        finally:
            query.stop()
        assert sorted(copies(cluster)) == list(range(sent))
