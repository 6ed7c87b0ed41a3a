"""The sink of a streaming query: the query is killed with SIGKILL at any point of a write, or brokers reject records.

Delivery is at least once: no record is lost, and only records of a killed attempt are written twice. With exactlyOnce,
a reader with read_committed sees each record once.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from ottla.spark.session import QUICK_JAVA
from ottla.spark.sink import BatchWriter, StreamWriter
from ottla.spark.source import OttlaDataSource

bootstrap, topic, _, home = sys.argv[1:]

class Watched:
    """Tells what it is asked for, and can be held before a commit."""

    def tell(self, *what):
        with open(f"{home}/{self.plan.topic}/told", "a") as told:
            told.write(json.dumps(what) + chr(10))

    def write(self, iterator):
        self.tell("task", os.getpid())
        return super().write(iterator)

    def commit(self, messages, *batch):
        self.tell("commit", [[row.batch_id, row.records] for row in messages])
        while os.path.exists(home + "/hold"):
            time.sleep(0.02)
        super().commit(messages, *batch)

class WatchedStream(Watched, StreamWriter):
    pass

class WatchedBatch(Watched, BatchWriter):
    pass

class Source(OttlaDataSource):
    @classmethod
    def name(cls):
        return "watched"

    def streamWriter(self, schema, overwrite):
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = WatchedStream
        return writer

    def writer(self, schema, overwrite):
        writer = super().writer(schema, overwrite)
        writer.__class__ = WatchedBatch
        return writer

# A core for each query. Tasks that fail are run again, as on a cluster; without the 3, local[] does not.
spark = ottla.spark.session("killed", "local[3,3]", **{
    "spark.sql.adaptive.enabled": False,
    "spark.ui.enabled": False, "spark.log.level": "OFF", "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
spark.dataSource.register(Source)
brokers = {"kafka.bootstrap.servers": bootstrap}
for target, (options, in_batches) in json.loads(open(home + "/sinks").read()).items():
    options = {**brokers, "topic": target, **options}

    def write(rows, batch, options=options):
        rows.write.format("watched").mode("append").options(**options).save()

    rows = spark.readStream.format("ottla").options(**brokers, subscribe=topic, startingOffsets="earliest").load()
    writes = rows.select("value", "partition").coalesce(1).writeStream
    writes = writes.foreachBatch(write) if in_batches else writes.format("watched").options(**options)
    writes = writes.option("checkpointLocation", f"{home}/{target}/checkpoint")
    writes.trigger(processingTime="100 milliseconds").start()
spark.streams.awaitAnyTermination()
'''


def run(spark: SparkSession, ottla: Ottla, source: str, target: str, checkpoint: Path, **options: Any) -> None:
    """Copy the available records, each to the same partition."""
    brokers = {"kafka.bootstrap.servers": ottla.bootstrap}
    rows = spark.readStream.format("ottla").options(**brokers, subscribe=source, startingOffsets="earliest").load()
    writes = rows.select("value", "partition").writeStream.format("ottla").options(**brokers, topic=target, **options)
    query = writes.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)


class Sink:
    """A query that copies a topic of two partitions to one of its own."""

    def __init__(self, ottla: Ottla, directory: Path, *, in_batches: bool = False, **options: str) -> None:
        self.ottla = ottla
        self.target = ottla.topic(partitions=2)
        self.home = Home(directory / self.target)
        self.home.path.mkdir()
        self.options = options
        self.in_batches = in_batches

    def told(self, kind: str) -> list[Any]:
        """Return the calls of the query's writers so far."""
        try:
            lines = (self.home.path / "told").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [row[1] for row in map(json.loads, lines) if row[0] == kind]

    def has(self, partition: int, rows: int) -> bool:
        """Whether the partition has this number of records."""
        return len(self.ottla.records(self.target, partition)) == rows

    def refused(self) -> Fault:
        """Reject writes to partition 1 until the fault ends. Writes to partition 0 succeed."""
        return self.ottla.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None, topic=self.target, partition=1)

    def committed(self) -> Counter[str]:
        """Return the values that a reader with read_committed sees now."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        with Consumer(bootstrap_servers=self.ottla.bootstrap, **settings) as consumer:
            ends = consumer.end_offsets([(self.target, 0), (self.target, 1)])
            consumer.assign(list(ends))
            found: Counter[str] = Counter()
            while any(consumer.position(tp) < end for tp, end in ends.items()):
                found.update(record.value.decode() for record in consumer.poll(0.1))
            return found

    def copies(self) -> dict[tuple[int, int], set[int]]:
        """Return the numbers of copies of the records, by batch and partition."""
        found = Counter(record.text for record in self.ottla.records(self.target))
        return {
            (batch, partition): {found[f"{batch}-{partition}-{i}"] for i in range(ROWS)}
            for batch in range(3)
            for partition in (0, 1)
        }


class Killed:
    """The driver process of several queries, which share its session."""

    def __init__(self, ottla: Ottla, directory: Path) -> None:
        self.ottla = ottla
        self.driver = Driver(ottla, Home(directory), DRIVER)
        self.plain = Sink(ottla, directory)
        self.once = Sink(ottla, directory, exactlyOnce="true")
        self.once_in_batches = Sink(ottla, directory, in_batches=True, exactlyOnce="true")
        self.exact = (self.once, self.once_in_batches)
        self.sinks = (self.plain, *self.exact)
        self.hold = directory / "hold"
        given = {sink.target: (sink.options, sink.in_batches) for sink in self.sinks}
        (directory / "sinks").write_text(json.dumps(given))

    def send(self, batch: int) -> None:
        """Send ten records to each partition, which each query reads as one micro-batch."""
        with self.ottla.faults.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=None, may_miss=True):
            for partition in (0, 1):
                self.ottla.produce(
                    self.driver.topic, *(f"{batch}-{partition}-{i}" for i in range(ROWS)), partition=partition
                )

    def until_all(self, condition: Callable[[Sink], object], what: str) -> None:
        self.driver.until(lambda: all(condition(sink) for sink in self.sinks), what)

    def run_to_the_end(self, spark: SparkSession) -> None:
        """Run the queries in another session, from their checkpoints."""
        brokers = {"kafka.bootstrap.servers": self.ottla.bootstrap}
        rows = spark.readStream.format("ottla").options(**brokers, subscribe=self.driver.topic).load()
        started = []
        for sink in self.sinks:
            options = {**brokers, "topic": sink.target, **sink.options}

            def write(batch: DataFrame, _: int, options: dict[str, str] = options) -> None:
                batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
                batch.write.format("ottla").mode("append").options(**options).save()

            writes = rows.select("value", "partition").coalesce(1).writeStream
            writes = writes.foreachBatch(write) if sink.in_batches else writes.format("ottla").options(**options)
            writes = writes.option("checkpointLocation", str(sink.home.path / "checkpoint"))
            started.append(writes.trigger(availableNow=True).start())
        for query in started:
            assert query.awaitTermination(WAIT_S)

    @contextmanager
    def half_written(self, batch: int, rows: int) -> Iterator[None]:
        """Send a batch of which each query writes partition 0; partition 1 is refused until the end of the block."""
        with ExitStack() as faults:
            refused = [faults.enter_context(sink.refused()) for sink in self.sinks]
            self.send(batch)
            self.driver.until(lambda: all(fault.count > 1 for fault in refused), "partition 1 is refused")
            self.until_all(lambda sink: sink.has(0, rows if sink is self.plain else rows - ROWS), "half is written")
            yield


@pytest.mark.long
@pytest.mark.timeout(900)
def test_queries_killed_at_any_point_lose_nothing_and_write_exactly_once_if_asked(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    """A query without exactlyOnce only writes the records of the killed attempts again."""
    killed = Killed(ottla, tmp_path / "queries")
    driver, plain = killed.driver, killed.plain
    killed.hold.touch()
    killed.send(0)
    with driver:
        killed.until_all(lambda sink: sink.told("commit"), "batch 0 is written")
        driver.kill()
    for sink in killed.sinks:
        assert sink.has(0, ROWS)
        assert sink.has(1, ROWS)
        assert sink.home.has("offsets", 0)
        assert not sink.home.has("commits", 0), "the driver was killed between write and commit"
        assert sum(sink.committed().values()) == 2 * ROWS
    killed.hold.unlink()

    with driver:
        killed.until_all(lambda sink: sink.home.has("commits", 0), "batch 0 is finished")
        batch = [[0, 2 * ROWS]]
        assert plain.told("commit") == [batch, batch], "the id of the batch identifies the repeated one"
        for sink in killed.exact:
            assert [row[0][1] for row in sink.told("commit")] == [2 * ROWS, 0], "the second attempt wrote nothing"

        with killed.half_written(1, 3 * ROWS):
            for sink in killed.sinks:
                os.kill(sink.told("task")[-1], signal.SIGKILL)
            killed.until_all(
                lambda sink: sink.has(0, (4 if sink is plain else 3) * ROWS), "another worker re-runs the task"
            )
            assert not any(sink.home.has("commits", 1) for sink in killed.sinks)
        killed.until_all(lambda sink: sink.home.has("commits", 1), "batch 1 is finished")
        for sink in killed.exact:
            assert sum(sink.committed().values()) == 4 * ROWS

        with killed.half_written(2, 5 * ROWS):
            driver.kill()
    assert plain.copies()[2, 1] == {0}
    for sink in killed.exact:
        assert sum(sink.committed().values()) == 4 * ROWS

    killed.run_to_the_end(spark)
    assert plain.copies() == {
        (0, 0): {2}, (0, 1): {2},  # the driver was killed after all records were written
        (1, 0): {2}, (1, 1): {1},  # the worker was killed after half of them
        (2, 0): {2}, (2, 1): {1},  # the driver was killed after half of them
    }  # fmt: skip
    assert len(ottla.records(plain.target)) == 10 * ROWS
    for sink in killed.exact:
        assert sink.committed() == Counter(
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
