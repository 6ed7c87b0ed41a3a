"""`format("ottla")` read in a real Spark session: columns, options, triggers, restarts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from ottla.clients import Admin, Producer
from tests.clients.support import FIRST_TIMESTAMP, unique
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 120


class World:
    """A broker, a session, and methods to create topics, send records and run queries."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoints: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.checkpoint = str(checkpoints / "checkpoint")
        self.admin = Admin(bootstrap)
        self._producer = Producer(bootstrap_servers=bootstrap)
        self.batches: list[tuple[int, int]] = []

    def topic(self, partitions: int = 1) -> str:
        name = unique("source")
        self.admin.create_topic(name, partitions=partitions, replication_factor=1)
        return name

    def send(self, topic: str, count: int, partition: int = 0) -> None:
        for i in range(count):
            self._producer.send(
                topic,
                None if i % 7 == 6 else b"v%d" % i,
                key=None if i % 5 == 4 else b"k%d" % i,
                partition=partition,
                timestamp_ms=FIRST_TIMESTAMP + i,
                headers=[("n", b"%d" % i), ("none", None)] if i % 3 == 0 else [],
            )
        self._producer.flush()

    def options(self, topic: str, **given: object) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic} | {n: str(v) for n, v in given.items()}

    def read(self, topic: str, **given: object) -> DataFrame:
        return self.spark.read.format("ottla").options(**self.options(topic, **given)).load()

    def query(self, topic: str, trigger: dict[str, Any], **given: object) -> StreamingQuery:
        stream = self.spark.readStream.format("ottla").options(**self.options(topic, **given)).load()

        def keep(rows: DataFrame, batch: int) -> None:
            self.batches.append((batch, rows.count()))

        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint)
        return writer.trigger(**trigger).start()

    def until(self, query: StreamingQuery, rows: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while sum(count for _, count in self.batches) < rows:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            assert time.monotonic() < deadline, f"{self.batches} of {rows} rows"
            time.sleep(0.05)

    def committed(self, group: str) -> dict[int, int]:
        return {tp.partition: at.offset for tp, at in self.admin.list_group_offsets(group).items()}

    def close(self) -> None:
        for query in self.spark.streams.active:
            query.stop()
        self._producer.close()
        self.admin.close()


@pytest.fixture
def world(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Iterator[World]:
    made = World(spark, broker.bootstrap, tmp_path)
    yield made
    made.close()


# -- batch -------------------------------------------------------------------------------------------------------


@pytest.mark.both
def test_batch_read_has_the_columns_of_sparks_kafka_source(world: World) -> None:
    topic = world.topic(2)
    world.send(topic, 10, 0)
    world.send(topic, 5, 1)
    frame = world.read(topic, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(0, i) for i in range(10)] + [(1, i) for i in range(5)]
    assert {row.topic for row in rows} == {topic}
    assert [None if row.key is None else bytes(row.key) for row in rows[:5]] == [b"k0", b"k1", b"k2", b"k3", None]
    assert rows[6].value is None
    assert bytes(rows[5].value) == b"v5"
    headers = [(each.key, None if each.value is None else bytes(each.value)) for each in rows[3].headers]
    assert headers == [("n", b"3"), ("none", None)]
    assert rows[3].timestamp.timestamp() == pytest.approx((FIRST_TIMESTAMP + 3) / 1000)
    assert rows[3].timestampType == 0
    assert "headers" not in world.read(topic).columns
    large = world.read(topic, minPartitions=6, startingOffsets=json.dumps({topic: {"0": 2, "1": -2}}))
    assert large.rdd.getNumPartitions() > 3, "a partition is read by several tasks"
    assert large.groupBy("partition").count().orderBy("partition").collect() == [(0, 8), (1, 5)]


def test_option_errors_are_raised_at_load(world: World) -> None:
    for given, text in (
        ({"startingOffset": "earliest"}, "There is no option 'startingoffset'; did you mean 'startingOffsets'?"),
        ({"subscribePattern": "x"}, "subscribe and subscribePattern are given"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets instead"),
    ):
        for reader in (world.spark.read, world.spark.readStream):
            with pytest.raises(AnalysisException) as caught:
                reader.format("ottla").options(**world.options("t", **given)).load()
            assert text in str(caught.value)
    with pytest.raises(AnalysisException, match=r"columns are fixed and cannot be set with schema"):
        world.spark.read.format("ottla").schema("a int").options(**world.options("t")).load().collect()


# -- streams -----------------------------------------------------------------------------------------------------


@pytest.mark.both
def test_available_now_query_continues_at_its_last_end(world: World) -> None:
    topic, group = world.topic(2), unique("group")
    world.send(topic, 20, 0)
    world.send(topic, 10, 1)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 15, "commitGroup": group}
    query = world.query(topic, {"availableNow": True}, **given)
    query.awaitTermination(WAIT_S)
    assert world.batches == [(0, 15), (1, 15)]
    assert world.committed(group) == {0: 20, 1: 10}, "the last batch is committed too"
    source = query.lastProgress["sources"][0]
    assert json.loads(source["endOffset"]) == {topic: {"0": 20, "1": 10}}
    assert json.loads(source["latestOffset"]) == {topic: {"0": 20, "1": 10}}

    world.send(topic, 4, 1)
    world.query(topic, {"availableNow": True}, **given).awaitTermination(WAIT_S)
    assert world.batches[2:] == [(2, 4)]
    assert world.committed(group) == {0: 20, 1: 14}
    assert sum(row.lag for row in world.admin.group_lag(group).values()) == 0


@pytest.mark.both
def test_running_query_reads_new_records_and_new_partitions(world: World) -> None:
    topic = world.topic()
    world.send(topic, 9)
    query = world.query(topic, {"processingTime": "100 milliseconds"})
    deadline = time.monotonic() + WAIT_S
    while not world.batches:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert world.batches == [(0, 0)], "it began at the end of the topic and stored that"
    world.send(topic, 5)
    world.until(query, 5)
    world.admin.create_partitions({topic: 2})
    world.send(topic, 6, 1)
    world.until(query, 11)
    query.stop()


def test_query_stops_with_an_error_when_its_topic_is_recreated(world: World) -> None:
    topic = world.topic()
    world.send(topic, 5)
    query = world.query(topic, {"processingTime": "100 milliseconds"}, startingOffsets="earliest")
    world.until(query, 5)
    world.admin.delete_topic(topic)
    with pytest.raises(StreamingQueryException, match=rf"{topic}-0 no longer exists.*failOnDataLoss"):
        query.awaitTermination(WAIT_S)
