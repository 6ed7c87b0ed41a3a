"""A program that makes Java load the classes of streams: two queries from a Python source, with and without state.

python -m ottla.spark.class_program OPTIONS      Java options; `class_archive` starts it
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from ottla.spark.internals import java
from ottla.spark.session import JAVA_OPTIONS, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES, TASKS, ROWS = 5, 2, 20_000
JAVA_END_S = 300.0


class _Numbers(DataSource):
    """Some micro-batches of numbers, and a sink that forgets them."""

    @classmethod
    def name(cls) -> str:
        return "ottla_numbers"

    def schema(self) -> str:
        return "key binary, value binary"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        return _Reader()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: ARG002, N802
        return _Writer()


class _Reader(DataSourceStreamReader):
    """Each call has one micro-batch more, up to the last one."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        return {"batch": min(start["batch"] + 1, BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:  # noqa: ARG002
        return [InputPartition(task) for task in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        texts = pa.array([b"%d" % (number + partition.value) for number in range(ROWS)])
        yield pa.RecordBatch.from_arrays([texts, texts], names=["key", "value"])


class _Writer(DataSourceStreamArrowWriter):  # type: ignore[misc,unused-ignore]
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None: ...  # noqa: N803 - Spark's

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None: ...  # noqa: N803 - Spark's


def run_queries(spark: SparkSession, directory: str) -> None:
    """Run both queries up to their ends."""
    spark.dataSource.register(_Numbers)
    rows = spark.readStream.format(_Numbers.name()).load()
    texts = rows.select(F.col("key").cast("string").alias("key"), F.upper(F.col("value").cast("string")).alias("value"))
    kept = texts.where("substr(value, 1, 1) <> '0'")
    counts = texts.groupBy("key").count().select("key", F.col("count").cast("string").alias("value"))
    queries = [
        kept.writeStream.format(_Numbers.name()).option("checkpointLocation", f"{directory}/kept").start(),
        counts.writeStream.outputMode("update").foreachBatch(_take)
        .option("checkpointLocation", f"{directory}/counts").start(),
    ]  # fmt: skip
    for query in queries:
        query.processAllAvailable()
        query.stop()


def _take(batch: DataFrame, _: int) -> None:
    batch.write.format("noop").mode("append").save()


def main() -> None:
    """Run the queries in a separate session, and wait until Java has ended, which writes the archive."""
    options: dict[str, Any] = {JAVA_OPTIONS: sys.argv[1], "spark.log.level": "ERROR"}
    spark = session("classes", "local[2]", **options)
    process = java.process_of(spark)
    with tempfile.TemporaryDirectory(prefix="ottla-classes-") as directory:
        run_queries(spark, directory)
        spark.stop()
    assert process.stdin is not None
    process.stdin.close()
    process.wait(JAVA_END_S)


if __name__ == "__main__":
    main()
