"""A query of Spark's own Kafka connector continues with ours from its checkpoint, and the opposite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing import Ottla
from tests.peers.cache import connector_jars, in_ci

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 120
OURS, THEIRS = "ottla", "kafka"
Batch = list[tuple[int, int]]


class Query:
    """A query with one checkpoint, which either source can run. `batches` has the records of each batch."""

    def __init__(self, spark: SparkSession, ottla: Ottla, checkpoint: Path) -> None:
        self.spark = spark
        self.ottla = ottla
        self.checkpoint = checkpoint
        self.batches: dict[int, list[Batch]] = {}

    def run(self, source: str, topic: str, **options: object) -> None:
        """Process the available records."""
        given = {"kafka.bootstrap.servers": self.ottla.bootstrap, "subscribe": topic, **options}
        rows = self.spark.readStream.format(source).options(**{name: str(value) for name, value in given.items()})

        def keep(rows: DataFrame, batch: int) -> None:
            read = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]
            self.batches.setdefault(batch, []).append(sorted(read))

        writes = rows.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))
        assert writes.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    def offsets(self, batch: int) -> Any:
        """Return the end of a batch according to the checkpoint."""
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])

    def forget_commit(self, batch: int) -> None:
        """Delete the commit of the last batch, as if the driver had crashed while it ran."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    def read(self) -> Batch:
        """Return the records of the last attempt of each batch."""
        return sorted(row for attempts in self.batches.values() for row in attempts[-1])


@pytest.fixture
def query(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> Query:
    if not connector_jars():
        (pytest.fail if in_ci() else pytest.skip)("no Spark Kafka connector: run `make peers`")
    return Query(spark, ottla, tmp_path / "checkpoint")


def fill(ottla: Ottla, topic: str, partition: int, count: int) -> None:
    ottla.produce(topic, *(f"v{i}" for i in range(count)), partition=partition)


def upto(*ends: int) -> Batch:
    return [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


@pytest.mark.jvm
@pytest.mark.timeout(300)
def test_each_source_continues_from_the_checkpoint_of_the_other(query: Query) -> None:
    topic = query.ottla.topic(partitions=2)
    fill(query.ottla, topic, 0, 10)
    fill(query.ottla, topic, 1, 4)
    query.run(THEIRS, topic, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    begun = len(query.batches)
    fill(query.ottla, topic, 1, 5)
    query.run(OURS, topic, startingOffsets="latest")  # the checkpoint wins
    assert query.read() == upto(10, 9)
    assert list(query.batches) == list(range(begun + 1)), "one numbering of batches"
    assert all(len(attempts) == 1 for attempts in query.batches.values()), "nothing is read twice"

    for batch, first, second in ((begun + 1, OURS, THEIRS), (begun + 3, THEIRS, OURS)):
        at = batch - begun + 9  # each batch has one record
        fill(query.ottla, topic, 0, 1)
        query.run(first, topic)
        query.forget_commit(batch)
        fill(query.ottla, topic, 0, 1)
        query.run(second, topic)  # re-runs the batch that the other source planned, then reads the new records
        assert query.batches[batch] == [[(0, at)]] * 2
        assert query.batches[batch + 1] == [[(0, at + 1)]]
    assert query.read() == upto(14, 9)
    assert query.offsets(begun + 1).keys() == query.offsets(begun + 3).keys() == {topic}
    assert query.offsets(begun + 4) == {topic: {"0": 14, "1": 9}}
