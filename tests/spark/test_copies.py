"""Spark on the target of a mirror: a stream of the source goes on with the copy and over its promotion.

Writes to the copy fail with an error that names the mirror.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException

from ottla.cli.main import main
from ottla.clients import Admin
from tests.cluster.processes import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.mirrors import PARTITIONS, TOPIC, mirror, produce, wait_until_copied
from tests.mirrors import WAIT_S as COPY_S
from tests.ottla_process import ForkedOttla, OttlaProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 150  # includes the start of Spark
REASON = f"Topic {TOPIC} is read-only: mirror dr copies it from another cluster"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """A source with ten records, and the target of a mirror with their copy."""
    with (
        ForkedOttla(tmp_path / "source", TEST_PROPERTIES) as source,
        ForkedOttla(tmp_path / "target", TEST_PROPERTIES) as target,
    ):
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        produce(source.bootstrap, 0, 10)
        mirror(source.bootstrap, target.bootstrap)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, COPY_S)
        wait_until_copied(source.bootstrap, target.bootstrap)
        yield source, target
        target.assert_no_traceback()


def options(cluster: OttlaProcess) -> dict[str, str]:
    return {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}


class Reads:
    """A stream with a checkpoint. `batches` has the values of each micro-batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self.batches: list[list[int]] = []

    def rows(self, cluster: OttlaProcess) -> DataFrame:
        """The topic in a cluster, as a stream."""
        return self._spark.readStream.format("ottla").options(**options(cluster)).load()

    def run(self, cluster: OttlaProcess) -> None:
        """Process the available records of a cluster."""

        def keep(frame: DataFrame, _: int) -> None:
            self.batches.append(sorted(int(row.value) for row in frame.select("value").collect()))

        writes = self.rows(cluster).writeStream.foreachBatch(keep).option("checkpointLocation", self._checkpoint)
        assert writes.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    def batch(self, cluster: OttlaProcess) -> list[int]:
        """The values that a batch reads from a cluster."""
        rows: Any = self._spark.read.format("ottla").options(**options(cluster)).load().select("value").collect()
        return sorted(int(row.value) for row in rows)


def test_spark_reads_a_copy_over_its_promotion_and_writes_after_it(
    spark: SparkSession, clusters: tuple[OttlaProcess, OttlaProcess], tmp_path: Path
) -> None:
    source, target = clusters
    reads = Reads(spark, tmp_path / "checkpoint")
    assert reads.batch(target) == list(range(10))
    reads.run(source)
    produce(source.bootstrap, 10, 4)
    wait_until_copied(source.bootstrap, target.bootstrap)
    reads.run(target)
    assert reads.batches == [list(range(10)), list(range(10, 14))]

    frame = spark.range(14, 20, 1, 2).selectExpr("cast(id as string) value", "cast(id % 2 as int) partition")
    sink = {"kafka.bootstrap.servers": target.bootstrap, "topic": TOPIC}

    def write() -> None:
        frame.write.format("ottla").options(**sink).mode("append").save()

    def write_stream() -> None:
        """Write each record of the copy, plus 100, in transactions."""
        changed = reads.rows(target).selectExpr("cast(cast(cast(value as string) as int) + 100 as string) value")
        writes = changed.writeStream.format("ottla").options(**sink, exactlyOnce="true")
        writes = writes.option("checkpointLocation", str(tmp_path / "writes"))
        assert writes.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    with pytest.raises(PythonException, match=re.escape(REASON)):
        write()
    with pytest.raises(StreamingQueryException, match=re.escape(REASON)):
        write_stream()

    assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
    write_stream()
    write()
    reads.run(target)
    assert [each for each in reads.batches[2:] if each] == [[*range(14, 20), *range(100, 114)]]
    assert reads.batch(target) == [*range(20), *range(100, 114)]
