"""The sink of a streaming query: the query is killed with SIGKILL at any point of a write, or brokers reject records.

Delivery is at least once: no record is lost, and only records of a killed attempt are written twice. With exactlyOnce,
a reader with read_committed sees each record once.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla.clients import Consumer
from ottla.testing import Ottla
from ottla.testing.faults import Fault

from .test_faults_killed import Driver, Home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 100
ROWS = 10
DRIVER = '''
import json, os, sys, time
import ottla.spark
from ottla.spark.sink import StreamWriter
from ottla.spark.source import OttlaDataSource

bootstrap, topic, target, home = sys.argv[1:]

class Watched(StreamWriter):
    """Tells what it is asked for, and can be held before a commit."""

    def tell(self, *what):
        with open(home + "/told", "a") as told:
            told.write(json.dumps(what) + chr(10))

    def write(self, iterator):
        self.tell("task", os.getpid())
        return super().write(iterator)

    def commit(self, messages, batchId):
        self.tell("commit", batchId, [[row.batch_id, row.query_id, row.records] for row in messages])
        while os.path.exists(home + "/hold"):
            time.sleep(0.02)
        super().commit(messages, batchId)

class Source(OttlaDataSource):
    @classmethod
    def name(cls):
        return "watched"

    def streamWriter(self, schema, overwrite):
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = Watched
        return writer

# Tasks that fail are run again, as on a cluster; without the 3, local[] does not.
spark = ottla.spark.session("killed", "local[2,3]", **{
    "spark.ui.enabled": False, "spark.log.level": "OFF", "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
spark.dataSource.register(Source)
brokers = {"kafka.bootstrap.servers": bootstrap}
stream = spark.readStream.format("ottla").options(**brokers, subscribe=topic, startingOffsets="earliest").load()
writes = stream.select("value", "partition").coalesce(1).writeStream.format("watched").options(**brokers, topic=target)
writes = writes.options(**json.loads(open(home + "/options").read()))
query = writes.option("checkpointLocation", home + "/checkpoint").trigger(processingTime="100 milliseconds")
query.start().awaitTermination()
'''


def run(spark: SparkSession, ottla: Ottla, source: str, target: str, checkpoint: Path, **options: Any) -> None:
    """Copy the available records, each to the same partition."""
    brokers = {"kafka.bootstrap.servers": ottla.bootstrap}
    rows = spark.readStream.format("ottla").options(**brokers, subscribe=source, startingOffsets="earliest").load()
    writes = rows.select("value", "partition").writeStream.format("ottla").options(**brokers, topic=target, **options)
    query = writes.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)


class Killed:
    """A query that copies a topic of two partitions to another one, with its own driver process."""

    def __init__(self, ottla: Ottla, directory: Path, **options: str) -> None:
        self.ottla = ottla
        self.home = Home(directory)
        self.driver = Driver(ottla, self.home, DRIVER)
        self.options = options
        (directory / "options").write_text(json.dumps(options))
        self.target = ottla.topic(self.driver.group, partitions=2)
        self.hold = directory / "hold"

    def send(self, batch: int) -> None:
        """Send ten records to each partition, which the query reads as one micro-batch."""
        with self.ottla.faults.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=None, may_miss=True):
            for partition in (0, 1):
                self.ottla.produce(
                    self.driver.topic, *(f"{batch}-{partition}-{i}" for i in range(ROWS)), partition=partition
                )

    def told(self, kind: str) -> list[list[Any]]:
        """Return the calls of the query's writers so far."""
        try:
            lines = (self.home.path / "told").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [row[1:] for row in map(json.loads, lines) if row[0] == kind]

    def has(self, partition: int, rows: int) -> bool:
        """Whether the partition has this number of records."""
        return len(self.ottla.records(self.target, partition)) == rows

    def refused(self) -> Fault:
        """Reject writes to partition 1 until the fault ends. Writes to partition 0 succeed."""
        return self.ottla.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None, topic=self.target, partition=1)

    def committed(self) -> Counter[str]:
        """What a reader with read_committed sees now."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=self.ottla.bootstrap, **settings) as consumer:
            ends = consumer.end_offsets([(self.target, 0), (self.target, 1)])
            consumer.assign(list(ends))
            found: Counter[str] = Counter()
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                found.update(record.value.decode() for record in consumer.poll(1.0))
            return found

    def copies(self) -> dict[tuple[int, int], set[int]]:
        """Return the numbers of copies of the records, by batch and partition."""
        found = Counter(record.text for record in self.ottla.records(self.target))
        return {
            (batch, partition): {found[f"{batch}-{partition}-{i}"] for i in range(ROWS)}
            for batch in range(3)
            for partition in (0, 1)
        }


@pytest.mark.timeout(300)
def test_sink_killed_at_any_point_loses_nothing_and_rewrites_only_that_attempt(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    killed = Killed(ottla, tmp_path / "query")
    home, driver = killed.home, killed.driver
    killed.hold.touch()
    killed.send(0)
    with driver:
        driver.until(lambda: killed.told("commit"), "batch 0 is written")
        assert killed.has(0, ROWS)
        assert killed.has(1, ROWS)
        assert home.has("offsets", 0)
        driver.kill()
    assert not home.has("commits", 0), "the driver was killed between write and commit"
    killed.hold.unlink()

    with driver:
        driver.until(lambda: home.has("commits", 0), "batch 0 is finished")
        query_id = json.loads((home.path / "checkpoint" / "metadata").read_text())["id"]
        batch = [0, [[0, query_id, 2 * ROWS]]]
        assert killed.told("commit") == [batch, batch], "batch and query id identify the repeated batch"

        with killed.refused() as refused:
            killed.send(1)
            driver.until(lambda: refused.count > 1 and killed.has(0, 3 * ROWS), "half of batch 1 is written")
            os.kill(killed.told("task")[-1][0], signal.SIGKILL)
            driver.until(lambda: killed.has(0, 4 * ROWS), "another worker re-runs the task")
            assert not home.has("commits", 1)
        driver.until(lambda: home.has("commits", 1), "batch 1 is finished")

        with killed.refused() as refused:
            killed.send(2)
            driver.until(lambda: refused.count > 1 and killed.has(0, 5 * ROWS), "half of batch 2 is written")
            driver.kill()
    assert killed.copies()[2, 1] == {0}

    run(spark, ottla, driver.topic, killed.target, home.path / "checkpoint")
    assert killed.copies() == {
        (0, 0): {2}, (0, 1): {2},  # the driver was killed after all records were written
        (1, 0): {2}, (1, 1): {1},  # the worker was killed after half of them
        (2, 0): {2}, (2, 1): {1},  # the driver was killed after half of them
    }  # fmt: skip
    assert len(ottla.records(killed.target)) == 10 * ROWS


@pytest.mark.timeout(300)
def test_exactly_once_sink_killed_at_any_point_writes_each_record_once(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    killed = Killed(ottla, tmp_path / "query", exactlyOnce="true")
    home, driver = killed.home, killed.driver
    killed.hold.touch()
    killed.send(0)
    with driver:
        driver.until(lambda: killed.told("commit"), "the tasks of batch 0 have committed")
        driver.kill()
    assert not home.has("commits", 0)
    assert sum(killed.committed().values()) == 2 * ROWS
    killed.hold.unlink()

    with driver:
        driver.until(lambda: home.has("commits", 0), "batch 0 is finished")
        assert [row[1][0][2] for row in killed.told("commit")] == [2 * ROWS, 0], "the second attempt wrote nothing"
        with killed.refused() as refused:
            killed.send(1)
            driver.until(lambda: refused.count > 1 and killed.has(0, 2 * ROWS), "half of batch 1 is written")
            os.kill(killed.told("task")[-1][0], signal.SIGKILL)
            driver.until(lambda: killed.has(0, 3 * ROWS), "another worker re-runs the task")
        driver.until(lambda: home.has("commits", 1), "batch 1 is finished")
        assert sum(killed.committed().values()) == 4 * ROWS
        with killed.refused() as refused:
            killed.send(2)
            driver.until(lambda: refused.count > 1 and killed.has(0, 4 * ROWS), "half of batch 2 is written")
            driver.kill()
    assert sum(killed.committed().values()) == 4 * ROWS

    run(spark, ottla, driver.topic, killed.target, home.path / "checkpoint", exactlyOnce="true")
    assert killed.committed() == Counter(
        f"{batch}-{partition}-{i}" for batch in range(3) for partition in (0, 1) for i in range(ROWS)
    )


@pytest.mark.timeout(200)
def test_counts_in_update_mode_are_written_once_although_the_function_fails_after_the_write(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    source, target = ottla.topic(), ottla.topic()
    brokers = {"kafka.bootstrap.servers": ottla.bootstrap}
    ottla.produce(source, *(f"{i % 3}" for i in range(30)))
    failures = [1]

    def write(counts: DataFrame, batch: int) -> None:
        rows = counts.selectExpr("concat(cast(value as string), '=', count) value")
        rows.write.format("ottla").mode("append").options(**brokers, topic=target, exactlyOnce="true").save()
        if failures:
            failures.pop()
            raise ZeroDivisionError

    def count() -> StreamingQuery:
        rows = spark.readStream.format("ottla").options(**brokers, subscribe=source, startingOffsets="earliest").load()
        writes = rows.groupBy("value").count().writeStream.outputMode("update").foreachBatch(write)
        return writes.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        count().awaitTermination(WAIT_S)
    assert count().awaitTermination(WAIT_S)
    committed = [record.text for record in ottla.records(target) if record.text]
    assert sorted(committed) == ["0=10", "1=10", "2=10"]


@pytest.mark.timeout(200)
class TestBrokers:
    """Rejected records are retried for delivery.timeout.ms; then the query fails with the reason."""

    SHORT: dict[str, Any] = {"kafka.delivery.timeout.ms": 1500, "kafka.request.timeout.ms": 500}

    def test_transient_errors_are_retried_without_duplicates(
        self, spark: SparkSession, ottla: Ottla, tmp_path: Path
    ) -> None:
        source, target = ottla.topic(), ottla.topic()
        values = [f"v{i}" for i in range(ROWS)]
        ottla.produce(source, *values)
        with (
            ottla.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic=target),
            ottla.faults.swallow("Produce", times=2, topic=target),
        ):
            run(spark, ottla, source, target, tmp_path / "checkpoint")
        assert [record.text for record in ottla.records(target)] == values

    def test_permanent_error_fails_the_query_and_a_restart_writes_the_rows(
        self, spark: SparkSession, ottla: Ottla, tmp_path: Path
    ) -> None:
        source, target = ottla.topic(), ottla.topic()
        values = [f"v{i}" for i in range(ROWS)]
        ottla.produce(source, *values)
        for given, reason in (
            (("fail", "NOT_ENOUGH_REPLICAS"), "not acknowledged after 1.5 s.*last error: .*replicas"),
            (("fail", "TOPIC_AUTHORIZATION_FAILED"), "authori"),
            (("disconnect",), "not acknowledged after 1.5 s.*last error: .*connection"),
        ):
            kind, *more = given
            with (
                getattr(ottla.faults, kind)("Produce", *more, times=None, topic=target),
                pytest.raises(StreamingQueryException, match=f"(?si)WriteFailed: Topic '{target}': .*{reason}"),
            ):
                run(spark, ottla, source, target, tmp_path / "checkpoint", **self.SHORT)
        assert ottla.records(target) == []
        run(spark, ottla, source, target, tmp_path / "checkpoint")
        assert [record.text for record in ottla.records(target)] == values

    def test_too_large_record_and_missing_topic_are_named(
        self, spark: SparkSession, ottla: Ottla, tmp_path: Path
    ) -> None:
        source, target = ottla.topic(), ottla.topic(max_message_bytes=2_000)
        ottla.produce(source, "small", "large" * 1_000)
        with pytest.raises(StreamingQueryException, match=f"(?s)WriteFailed: Topic '{target}': .*large"):
            run(spark, ottla, source, target, tmp_path / "checkpoint")
        missing = {"kafka.max.block.ms": 1000, "kafka.allow.auto.create.topics": "false"}
        with pytest.raises(StreamingQueryException, match=f"(?s)WriteFailed: Topic '{target}-not': .*{target}-not"):
            run(spark, ottla, source, f"{target}-not", tmp_path / "other", **missing)
