"""A Spark driver with two exactly-once queries, on executors in processes of their own.

test_exactly_once_queries.py starts it, and kills it and its processes. A query that fails is started again from its
checkpoint in the same session. `copied` writes directly, `deduplicated` has a state store and writes in foreachBatch.

Arguments: bootstrap servers, and a directory for the checkpoints.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import ottla.spark
from ottla.spark.session import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

bootstrap, home = sys.argv[1:]
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
spark = ottla.spark.session(
    "chaos", "local-cluster[2,1,512]",
    **{
        "spark.ui.enabled": False, "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": 2,
        "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA,
        # Executors are killed more often than Spark expects.
        "spark.deploy.maxExecutorRetries": -1, "spark.worker.cleanup.enabled": True,
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": f"{home}/local", "spark.sql.streaming.minBatchesToRetain": 100_000,
    },
)  # fmt: skip
CLIENT = {"kafka.bootstrap.servers": bootstrap, "kafka.request.timeout.ms": "5000"}


def read() -> DataFrame:
    options = {"subscribe": "source", "startingOffsets": "earliest", "minPartitions": "3"}
    rows = spark.readStream.format("ottla").options(**CLIENT, **options, maxOffsetsPerTrigger="3000").load()
    number = "cast(substr(cast(value as string), 1, 12) as int)"
    return rows.selectExpr(f"concat_ws(' ', partition, {number}) value", f"{number} % 2 partition")


def write(rows: DataFrame, _batch: int) -> None:
    rows.write.format("ottla").mode("append").options(**CLIENT, topic="deduplicated", exactlyOnce="true").save()


def copy() -> StreamingQuery:
    writer = read().writeStream.format("ottla").options(**CLIENT, topic="copied", exactlyOnce="true")
    return writer.option("checkpointLocation", f"{home}/copied").start()


def deduplicate() -> StreamingQuery:
    writer = read().dropDuplicates(["value"]).writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", f"{home}/deduplicated").start()


def run(start: Callable[[], StreamingQuery], query: StreamingQuery | None) -> StreamingQuery:
    """Start a query, or start it again if it has failed."""
    if query is not None:
        if query.isActive:
            return query
        print("FAILED", str(query.exception()).partition("JVM stacktrace")[0][:3000], flush=True)
    return start()


queries: list[StreamingQuery | None] = [None, None]
while True:
    queries = [run(start, query) for start, query in zip((copy, deduplicate), queries, strict=True)]
    time.sleep(0.1)
