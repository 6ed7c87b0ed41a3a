"""Streaming queries in Spark with faulty topics and brokers: errors, records read, and where queries continue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from ottla.clients import Admin, Producer, TopicPartition
from ottla.testing import Ottla
from tests.clients.support import unique
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 120
pytestmark = pytest.mark.timeout(300)


class Query:
    """A query with its checkpoint; `rows` are the records that it has read, as (topic, partition, offset)."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path, **options: object) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.rows: list[tuple[str, int, int]] = []
        self._options = {
            "kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": 0,
            "kafka.metadata.max.age.ms": 100, **options,
        }  # fmt: skip

    def start(self, trigger: dict[str, Any], **options: object) -> StreamingQuery:
        """Start the query."""
        given = {name: str(value) for name, value in {**self._options, **options}.items()}

        def keep(rows: DataFrame, _batch: int) -> None:
            self.rows += [tuple(row) for row in rows.select("topic", "partition", "offset").collect()]

        stream = self.spark.readStream.format("ottla").options(**given).load()
        return (
            stream.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def run(self, **options: object) -> list[int]:
        """Process the available records, and return their offsets."""
        before = len(self.rows)
        assert self.start({"availableNow": True}, **options).awaitTermination(WAIT_S)
        return sorted(offset for _, _, offset in self.rows[before:])

    def fails(self, match: str, **options: object) -> None:
        """Check that a run fails and processes no records."""
        before = len(self.rows)
        with pytest.raises(StreamingQueryException, match=f"(?s){match}"):
            self.start({"availableNow": True}, **options).awaitTermination(WAIT_S)
        assert self.rows[before:] == []

    def until(self, query: StreamingQuery, rows: int) -> None:
        """Wait until the query has read `rows` records."""
        deadline = time.monotonic() + WAIT_S
        while len(self.rows) < rows:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            assert time.monotonic() < deadline, f"{len(self.rows)} of {rows} rows"
            time.sleep(0.02)


@pytest.fixture(autouse=True)
def stopped(spark: SparkSession) -> Iterator[None]:
    """Stop the queries of each test at its end."""
    yield
    for query in spark.streams.active:
        query.stop()


def fill(ottla: Ottla, topic: str, count: int, partition: int = 0) -> None:
    ottla.produce(topic, *(f"v{i}" for i in range(count)), partition=partition)


def test_corrupt_or_deleted_records_stop_a_query_unless_it_may_lose_data(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    topic = ottla.topic()
    query = Query(spark, ottla.bootstrap, tmp_path / "checkpoint", subscribe=topic)
    for _ in range(3):
        fill(ottla, topic, 5)
    with ottla.faults.corrupt(topic, offset=7):
        query.fails(f"{topic}-0 at offset 5: .*failOnDataLoss=false")
        assert query.run(failOnDataLoss=False) == [*range(5), *range(10, 15)]

    with Admin(ottla.bootstrap) as admin:
        fill(ottla, topic, 10)
        admin.delete_records({TopicPartition(topic, 0): 19})
        query.fails(rf"{topic}-0: offsets 15 to 18 .*failOnDataLoss=false")
        assert query.run(failOnDataLoss=False) == [*range(19, 25)]

        admin.delete_topic(topic)
        ottla.wait_until(lambda: topic not in {row.name for row in admin.list_topics()})
        admin.create_topic(topic, partitions=1, replication_factor=1)
    fill(ottla, topic, 3)  # the new topic ends before the query's position in the old one
    query.fails(rf"{topic}-0 ends at offset 3, before the query's position 25")
    assert query.run(failOnDataLoss=False) == []
    fill(ottla, topic, 2)
    assert query.run() == [3, 4], "later records are read normally"


def test_running_query_survives_created_and_deleted_topics_and_moving_leaders(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    name = unique("pattern")
    first, second = f"{name}-a", f"{name}-b"
    with Admin(ottla.bootstrap) as admin:
        admin.create_topic(first, partitions=1, replication_factor=1)
        fill(ottla, first, 5)
        query = Query(
            spark, ottla.bootstrap, tmp_path / "checkpoint", subscribePattern=f"{name}-.", failOnDataLoss=False
        )
        running = query.start({"processingTime": "50 milliseconds"}, maxOffsetsPerTrigger=4)
        query.until(running, 5)
        admin.create_partitions({first: 2})
        fill(ottla, first, 3, partition=1)
        query.until(running, 8)
        admin.create_topic(second, partitions=1, replication_factor=1)
        fill(ottla, second, 6)
        query.until(running, 14)
        admin.delete_topic(first)
        moved = ottla.faults.move_leader(second, times=2)
        dead = ottla.faults.disconnect("Fetch")
        fill(ottla, second, 7)
        query.until(running, 21)
    running.stop()
    assert moved.count
    assert dead.count
    wanted = [(first, 0, i) for i in range(5)] + [(first, 1, i) for i in range(3)] + [(second, 0, i) for i in range(13)]
    assert sorted(query.rows) == sorted(wanted)


def test_unavailable_broker_is_retried_and_then_named(spark: SparkSession, tmp_path: Path) -> None:
    with ForkedOttla(tmp_path / "broker", TEST_PROPERTIES) as broker:
        topic = unique("away")
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(topic, partitions=1, replication_factor=1)

        def send(count: int) -> None:
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                for i in range(count):
                    producer.send(topic, b"%d" % i)

        limit = {"subscribe": topic, "kafka.default.api.timeout.ms": 5000}
        query = Query(spark, broker.bootstrap, tmp_path / "checkpoint", **limit)
        send(5)
        running = query.start({"processingTime": "50 milliseconds"})
        query.until(running, 5)
        broker.kill()
        time.sleep(1.0)
        broker.start()
        send(4)
        query.until(running, 9)

        broker.kill()
        began = time.monotonic()
        with pytest.raises(StreamingQueryException, match=rf"(?s)Asking {broker.bootstrap} for .*refused"):
            running.awaitTermination(WAIT_S)
        assert 2 < time.monotonic() - began < 30, "requests are retried for default.api.timeout.ms"
        broker.start()
        send(3)
        assert query.run() == [9, 10, 11]


def test_value_that_does_not_match_its_schema_is_named(spark: SparkSession, ottla: Ottla) -> None:
    topic = ottla.topic()
    ottla.produce(topic, '{"id": 1}', '{"id": 2}', '{"id": "three"}')
    options = {"kafka.bootstrap.servers": ottla.bootstrap, "subscribe": topic, "value.format": "json"}
    frame = spark.read.format("ottla").options(**options, **{"value.schema": "id INT"}).load().select("value.id")
    with pytest.raises(PythonException, match=f"(?s)Topic '{topic}', partition 0, offset 2: the value's field id "):
        frame.collect()
