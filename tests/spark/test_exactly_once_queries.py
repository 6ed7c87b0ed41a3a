"""Queries of Spark that write with exactlyOnce: what they refuse, and what they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ottla.testing import Ottla

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 100
ALL, STREAMS = "spark.sql.adaptive.enabled", "spark.sql.adaptive.streaming.stateless.enabled"


class Stream:
    """Queries that read a topic and write to another one with exactlyOnce, to the end of what is available."""

    def __init__(self, spark: SparkSession, ottla: Ottla, directory: Path) -> None:
        self.source, self.target = ottla.topic(), ottla.topic()
        self.brokers = {"kafka.bootstrap.servers": ottla.bootstrap}
        self._spark = spark
        self._directory = directory

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
def stream(spark: SparkSession, ottla: Ottla, tmp_path: Path) -> Stream:
    return Stream(spark, ottla, tmp_path)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_adaptive_execution_of_a_query_is_refused(stream: Stream, spark: SparkSession, ottla: Ottla) -> None:
    ottla.produce(stream.source, "a", "b")
    shuffled = stream.rows().select("value").repartition("value")
    with setting(spark, STREAMS, "true"), pytest.raises(StreamingQueryException, match=f"set {STREAMS}=false"):
        stream.write(shuffled)
    with pytest.raises(StreamingQueryException, match=f"set {ALL}=false"):
        stream.write_batches(shuffled)
    assert ottla.records(stream.target) == []
    stream.write(shuffled)
    with setting(spark, ALL, "false"):
        stream.write_batches(shuffled)
    assert sorted(record.text for record in ottla.records(stream.target) if record.text) == ["a", "a", "b", "b"]
