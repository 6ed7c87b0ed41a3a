"""The most frequent key among the rows of a slow task: the program of the query, over a sample of its next records.

The function of the pipeline is called with a few records as a batch. Spark itself computes the rows that its operators
with state would group, so the key may be renamed, computed or exploded, in any format. The task of a key is known, too:
Spark takes the hash of the key modulo the number of tasks. So a key is named only if it belongs to the slow task.

A sample costs a query over 1,000 records of each stream, and a read of the tables that the pipeline joins.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.clients.admin import Admin, OffsetSpec
from ottla.common.ids import TopicPartition
from ottla.streams.declarations import Pipeline
from ottla.streams.errors import StreamsError
from ottla.streams.inputs import read_sample
from ottla.streams.operators import KeyedRows, keyed_rows
from ottla.streams.outputs import Query
from ottla.streams.settings import Settings
from ottla.streams.status import FrequentKey, SlowTask, Status

SAMPLE_RECORDS: Final = 1_000
SAMPLE_PARTITIONS: Final = 50
"""The limits of a sample of a stream: offsets, and the partitions with most of the waiting records."""
LONGEST_VALUE: Final = 60


def sample_keys(query: Query, pipeline: Pipeline, settings: Settings, status: Status, slow: SlowTask) -> SlowTask:
    """Return the slow task with its most frequent keys, or with why they are not known.

    Blocks while Spark reads the sample. Raises StreamsError, and exceptions of clients and Spark.
    """
    spark = query.outputs[0].rows.sparkSession
    if slow.tasks != int(spark.conf.get("spark.sql.shuffle.partitions") or 0):
        return replace(slow, unknown="the tasks of the stage have the rows of several operators")
    ranges = _ranges(pipeline, settings, status)
    if not any(end > start for partitions in ranges.values() for start, end in partitions.values()):
        return replace(slow, unknown="no records wait that could be a sample")
    topics = [output.topic for output in query.outputs]
    outputs = pipeline.outputs(**read_sample(spark, pipeline, settings, ranges))
    try:
        keyed = [each for output in outputs if output.topic in topics for each in keyed_rows(output.rows)]
    except StreamsError as error:
        return replace(slow, unknown=str(error))
    if not keyed:
        return replace(slow, unknown="no operator with state has a key")
    found = tuple(key for each in keyed if (key := _frequent_key(each, slow)) is not None)
    return replace(slow, keys=found, unknown="" if found else "no row of the sample is for this task")


def _frequent_key(keyed: KeyedRows, slow: SlowTask) -> FrequentKey | None:
    """Return the most frequent key of the rows of a task; None if it has no rows."""
    names = [f"`{name}`" for name in keyed.keys.columns]
    task = F.pmod(F.hash(*names), F.lit(slow.tasks)).alias("task")
    counted = keyed.keys.groupBy(task, *names).agg(F.count(F.lit(1)).alias("rows"))
    of_tasks = counted.groupBy("task").agg(
        F.sum("rows").alias("rows"), F.max("rows").alias("count"), F.max_by(F.struct(*names), "rows").alias("key")
    )
    rows: list[Any] = of_tasks.collect()
    own = next((row for row in rows if row["task"] == slow.task), None)
    if own is None:
        return None
    values = tuple(_shown(value) for value in own["key"])
    total = sum(row["rows"] for row in rows)
    return FrequentKey(keyed.operator, keyed.columns, values, own["count"], own["rows"], total)


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        text = repr(bytes(value))[1:]
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _ranges(pipeline: Pipeline, settings: Settings, status: Status) -> dict[str, dict[int, tuple[int, int]]]:
    """Return the next offsets of each stream: of each partition as many as its share of the waiting records.

    Raises exceptions of clients.
    """
    offsets = {
        TopicPartition(each.topic, one.partition): one.offset for each in status.inputs for one in each.partitions
    }
    with Admin(dict(settings.client)) as admin:
        wanted = dict.fromkeys(offsets, OffsetSpec.LATEST)
        ends = admin.list_offsets(wanted, read_committed=pipeline.exactly_once)
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic in {each.topic for each in pipeline.streams.values()}:
        waiting = {tp: max(0, ends[tp].offset - offset) for tp, offset in offsets.items() if tp.topic == topic}
        if not waiting:
            raise StreamsError(f"the offsets of {topic!r} are not known yet")
        chosen = sorted(waiting, key=lambda tp: -waiting[tp])[:SAMPLE_PARTITIONS]
        total = max(1, sum(waiting[tp] for tp in chosen))
        found[topic] = {
            tp.partition: (offsets[tp], offsets[tp] + min(waiting[tp], -(-SAMPLE_RECORDS * waiting[tp] // total)))
            for tp in chosen
        }
    return found
