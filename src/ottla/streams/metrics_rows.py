"""The metrics of queries, from their statuses: names, meaning, samples. Without I/O, clock or Spark.

Tests compare the table with docs/metrics.md. Counters begin with the run.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ottla.metrics.exposition import Samples, labelled
from ottla.metrics.family import COUNTER, GAUGE, Families
from ottla.streams.status import Status

FAMILIES: Final = Families()
"""Every metric by its name, in the order of a scrape."""
_QUERY: Final = ("pipeline", "query")
MOST_PARTITIONS: Final = 1_000
"""How many partitions of a topic have samples of their own."""

STATE = FAMILIES.add(
    "ottla_stream_state",
    GAUGE,
    "Always 1; the state in its label: running, restarting, stopped, done or failed.",
    *_QUERY,
    "state",
)
BATCHES = FAMILIES.add("ottla_stream_batches_total", COUNTER, "Finished micro-batches.", *_QUERY)
RECORDS = FAMILIES.add("ottla_stream_records_total", COUNTER, "Records that were processed.", *_QUERY)
BUSY = FAMILIES.add("ottla_stream_busy_seconds_total", COUNTER, "Time of all finished micro-batches.", *_QUERY)
INPUT_RATE = FAMILIES.add(
    "ottla_stream_input_records_per_second",
    GAUGE,
    "Records that arrived per second between the last two micro-batches.",
    *_QUERY,
)
PROCESSED_RATE = FAMILIES.add(
    "ottla_stream_processed_records_per_second", GAUGE, "Records per second of the last micro-batch.", *_QUERY
)
BATCH_DURATION = FAMILIES.add(
    "ottla_stream_batch_duration_seconds", GAUGE, "How long the last micro-batch took.", *_QUERY
)
BATCH_FINISHED = FAMILIES.add(
    "ottla_stream_batch_finished_timestamp_seconds",
    GAUGE,
    "When the last micro-batch finished, since the Unix epoch.",
    *_QUERY,
)
BATCH_RUNNING = FAMILIES.add(
    "ottla_stream_batch_running_seconds", GAUGE, "For how long a micro-batch has been running; 0 without one.", *_QUERY
)
LAG = FAMILIES.add(
    "ottla_stream_lag_records",
    GAUGE,
    "Records of a topic that the last micro-batch saw and that are not processed.",
    *_QUERY,
    "topic",
)
PARTITION_LAG = FAMILIES.add(
    "ottla_stream_partition_lag_records", GAUGE, "The same by partition.", *_QUERY, "topic", "partition"
)
WATERMARK = FAMILIES.add(
    "ottla_stream_watermark_timestamp_seconds", GAUGE, "The watermark of the event time, since the Unix epoch.", *_QUERY
)
STATE_ROWS = FAMILIES.add("ottla_stream_state_rows", GAUGE, "Rows in the state of an operator.", *_QUERY, "operator")
STATE_BYTES = FAMILIES.add(
    "ottla_stream_state_bytes", GAUGE, "Memory of the state of an operator, as Spark reports it.", *_QUERY, "operator"
)
OUTPUT_ROWS = FAMILIES.add(
    "ottla_stream_output_rows_total", COUNTER, "Rows that were written, as far as Spark reports them.", *_QUERY, "topic"
)
INVALID = FAMILIES.add(
    "ottla_stream_invalid_records_total",
    COUNTER,
    "Invalid records that were skipped or written to their topic.",
    *_QUERY,
    "input",
)
LATE = FAMILIES.add(
    "ottla_stream_late_rows_total",
    COUNTER,
    "Rows that were dropped because they were later than the watermark.",
    *_QUERY,
)


def add_status(samples: Samples, status: Status, now_ms: int) -> None:
    """Add the metrics of a query."""
    query = {"pipeline": status.run.pipeline, "query": status.run.query}
    labels = labelled(**query)
    samples.add(STATE, 1, labelled(**query, state=status.phase))
    samples.add(BATCHES, status.batches, labels)
    samples.add(RECORDS, status.records, labels)
    samples.add(BUSY, status.busy_ms / 1000, labels)
    samples.add(LATE, status.late, labels)
    if status.run.notes_batches:
        since_ms = now_ms if status.busy_since_ms is None else status.busy_since_ms
        samples.add(BATCH_RUNNING, max(0, now_ms - since_ms) / 1000, labels)
    if status.watermark_ms is not None:
        samples.add(WATERMARK, status.watermark_ms / 1000, labels)
    if status.batch is not None:
        samples.add(INPUT_RATE, status.batch.arrived_per_s, labels)
        samples.add(PROCESSED_RATE, status.batch.processed_per_s, labels)
        samples.add(BATCH_DURATION, status.batch.duration_ms / 1000, labels)
        samples.add(BATCH_FINISHED, status.batch.finished_ms / 1000, labels)
    for given in status.inputs:
        samples.add(LAG, given.lag, labelled(**query, topic=given.topic))
        for each in given.partitions[:MOST_PARTITIONS]:
            samples.add(PARTITION_LAG, each.lag, labelled(**query, topic=given.topic, partition=each.partition))
    _add_state(samples, status, query)
    for topic, rows in status.outputs.items():
        samples.add(OUTPUT_ROWS, rows, labelled(**query, topic=topic))
    for parameter, number in status.invalid.items():
        samples.add(INVALID, number, labelled(**query, input=parameter))


def _add_state(samples: Samples, status: Status, query: dict[str, str]) -> None:
    # Operators may have equal names: two samples with equal labels would make the whole scrape invalid.
    rows: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for store in status.stores:
        rows[store.operator] += store.rows
        memory[store.operator] += store.memory_bytes
    for operator in rows:
        labels = labelled(**query, operator=operator)
        samples.add(STATE_ROWS, rows[operator], labels)
        samples.add(STATE_BYTES, memory[operator], labels)
