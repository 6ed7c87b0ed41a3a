"""Spark queries that write with exactlyOnce: what they refuse, and what they read and write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla.clients import Admin, Consumer, Producer
from ottla.common.ids import TopicPartition
from tests.clients.proxy import Proxy
from tests.clients.support import unique
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 100
INIT_PRODUCER_ID, END_TXN = 22, 26
pytestmark = pytest.mark.timeout(300)
ALL, STREAMS = "spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled"


class Stream:
    """Queries that read a topic and write to another one with exactlyOnce, to the end of the available records."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.source, self.target = unique("source"), unique("target")
        self.bootstrap = bootstrap
        self.brokers = {"kafka.bootstrap.servers": bootstrap}
        self._spark = spark
        self._directory = directory
        with Admin(bootstrap) as admin:
            for topic in (self.source, self.target):
                admin.create_topic(topic, partitions=1, replication_factor=1)

    def produce(self, *values: bytes) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for value in values:
                producer.send(self.source, value, partition=0)

    def written(self) -> list[bytes]:
        """The values in the target that a reader with read_committed sees now."""
        place = TopicPartition(self.target, 0)
        found: list[bytes] = []
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=self.bootstrap, **settings) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            deadline = time.monotonic() + WAIT_S
            while consumer.position(place) < end:
                assert time.monotonic() < deadline, "the end of the target cannot be read"
                found += [record.value for record in consumer.poll(0.1)]
        return found

    def rows(self, **options: str) -> DataFrame:
        options = {"subscribe": self.source, "startingOffsets": "earliest", **options}
        return self._spark.readStream.format("ottla").options(**self.brokers, **options).load()

    def sink(self, **options: str) -> dict[str, str]:
        return {**self.brokers, "topic": self.target, "exactlyOnce": "true", **options}

    def write(self, rows: DataFrame, **options: str) -> None:
        """Write with the sink of streams."""
        self._run("stream", rows.writeStream.format("ottla").options(**self.sink(**options)))

    def write_batches(self, rows: DataFrame, **options: str) -> None:
        """Write with the sink of batches, in foreachBatch."""

        def write(batch: DataFrame, _: int) -> None:
            batch.write.format("ottla").mode("append").options(**self.sink(**options)).save()

        self._run("batches", rows.writeStream.foreachBatch(write))

    def _run(self, checkpoint: str, writer: Any) -> None:
        query = (
            writer.option("checkpointLocation", str(self._directory / checkpoint)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(WAIT_S)


@pytest.fixture
def stream(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Stream:
    return Stream(spark, broker.bootstrap, tmp_path)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_adaptive_execution_of_a_query_is_refused(stream: Stream, spark: SparkSession) -> None:
    """The refusal depends on the settings of the session, not on the plan: a query without a shuffle is quicker."""
    stream.produce(b"a", b"b")
    rows = stream.rows().select("value")
    with setting(spark, STREAMS, "true"), pytest.raises(StreamingQueryException, match=f"set {STREAMS}=false"):
        stream.write(rows)
    with pytest.raises(StreamingQueryException, match=f"set {ALL}=false"):
        stream.write_batches(rows)
    assert stream.written() == []
    stream.write(rows.repartition("value"))
    assert sorted(stream.written()) == [b"a", b"b"]


@pytest.mark.both
def test_committed_records_of_transactions_are_copied_once(stream: Stream) -> None:
    """Micro-batches of three offsets begin and end at markers, or have only aborted records."""
    read = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": "3"}
    settings = {"transactional.id": stream.source}
    committed: list[bytes] = []
    with Producer(settings, bootstrap_servers=stream.bootstrap) as producer:
        producer.init_transactions()
        for number, count in enumerate([3, 4, 1, 1]):
            values = [b"%d-%d" % (number, row) for row in range(count)]
            producer.begin_transaction()
            for value in values:
                producer.send(stream.source, value, partition=0)
            if number % 2:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += values
        producer.begin_transaction()
        producer.send(stream.source, b"open", partition=0)
        producer.flush()
        stream.write(stream.rows(**read).select("value"))
        assert stream.written() == committed, "neither aborted records nor records of the open transaction"
        producer.commit_transaction()
    stream.write(stream.rows(**read).select("value"))
    assert stream.written() == [*committed, b"open"]


def test_workers_of_a_query_continue_with_the_producer_of_the_last_batch(stream: Stream) -> None:
    """Spark's workers that read and that write exchange their places with each batch."""
    values = [b"%d" % number for number in range(6)]
    stream.produce(*values)
    with Proxy(stream.bootstrap) as proxy:
        stream.write(
            stream.rows(maxOffsetsPerTrigger="1").select("value"), **{"kafka.bootstrap.servers": proxy.bootstrap}
        )
        asked = [proxy.asked.count(kind) for kind in (INIT_PRODUCER_ID, END_TXN)]
    assert asked == [1, len(values)]
    assert stream.written() == values
