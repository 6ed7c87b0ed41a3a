"""The sink of `format("ottla")` with exactlyOnce against the same sink without it, in one session on local[2].

    python -m benchmarks.spark_exactly_once [ROUNDS]

Small: micro-batches of ten records of a topic, one task. Large: micro-batches of 500,000 rows of 100 B, six tasks. The
two sinks write in turn, round by round, and begin in turn, too. The first rounds warm the JVM up and are not counted.
Both write to one topic whose retention is short, so that the kernel uses pages that have become free again: on a
virtual machine, pages that the host must provide cost up to three times the broker's own CPU, by chance.
CPU includes Spark's processes and the broker, also by part. The difference is the median of the differences of the
rounds: the JVM compiles all the time, and another load of the machine changes both sinks of a round. Rounds differ by
more than what the sinks cost (the last two columns).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import SETTINGS, start_ottla
from benchmarks.process_times import spent
from benchmarks.spark import KEY, OURS, PARTITIONS, VALUE, Stage, open_stage, progress, rows_of, trigger_s, wait
from benchmarks.wire import Figures, new_topic
from ottla.clients import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

ROWS = 1_000_000
SMALL_ROWS = 10
SEGMENT = 16 * 1024 * 1024
PAUSE_S = 0.1
SINKS = {"at least once": {}, "exactly once": {"exactlyOnce": "true"}}
MS, CPU, RATE = "ms", "CPU ms", "rows/s"
AIMS = {MS: "30 ms more", CPU: "5 % more", RATE: "20 % fewer"}


@dataclass(frozen=True)
class Size:
    """Micro-batches; those before `first` are not counted."""

    name: str
    rows: DataFrame
    target: str
    """The topic to write to."""
    first: int
    last: int
    warm_ups: int
    """Rounds in which the JVM compiles; they are not counted."""


def small(stage: Stage) -> Size:
    """Batches of the source of Ottla, from a topic that is filled already, so that no batch waits for records."""
    first, last = 20, 95  # Spark keeps the progress of the last 100
    topic = new_topic(stage.broker, 1)
    with Producer(bootstrap_servers=stage.broker.bootstrap) as producer:
        for _ in range((last + 20) * SMALL_ROWS):
            producer.send(topic, b"small", partition=0)
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=SMALL_ROWS)
    rows = stage.spark.readStream.format(OURS).options(**options).load().select("key", "value")
    return Size("ten records a micro-batch", rows, new_topic(stage.broker, 1), first, last, warm_ups=12)


def large(stage: Stage) -> Size:
    """Batches of half a million rows that Spark generates."""
    options = {"rowsPerBatch": ROWS // 2, "numPartitions": PARTITIONS}
    source = stage.spark.readStream.format("rate-micro-batch").options(**options).load()
    rows = source.selectExpr(KEY.format("value"), VALUE.format("value"))
    target = new_topic(stage.broker, PARTITIONS, **{"segment.bytes": str(SEGMENT), "retention.bytes": str(SEGMENT)})
    return Size("500,000 rows a micro-batch", rows, target, 2, 18, warm_ups=4)


def run(stage: Stage, size: Size, options: dict[str, str]) -> Figures:
    """The median time of a micro-batch, rows a second, and the CPU of a micro-batch, in all and by part."""
    writer = size.rows.writeStream.format(OURS).options(**stage.options(topic=size.target, **options))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        wait(query, lambda: last_batch(query) >= size.first, PAUSE_S)
        before, used = last_batch(query), stage.cpu_parts()
        wait(query, lambda: last_batch(query) >= size.last, PAUSE_S)
        after, used_after = last_batch(query), stage.cpu_parts()
        query.stop()
    counted = [row for row in progress(query) if before < row["batchId"] <= after]
    times = [float(row["durationMs"]["triggerExecution"]) for row in counted]
    parts = {part: seconds * 1000 / len(counted) for part, seconds in spent(used, used_after).items()}
    return {
        MS: statistics.median(times), RATE: rows_of(counted) / trigger_s(counted), CPU: sum(parts.values()),
        **{f"{CPU}: {part}": used for part, used in parts.items()},
    }  # fmt: skip


def last_batch(query: StreamingQuery) -> int:
    """The last micro-batch that has ended; -1 before the first one."""
    told = query.lastProgress
    return -1 if told is None else int(told["batchId"])


def race(stage: Stage, size: Size, rounds: int, console: Console) -> None:
    """Print the medians of both sinks and of their differences."""
    found: dict[str, list[Figures]] = {name: [] for name in SINKS}
    for number in range(size.warm_ups + rounds):
        for name in sorted(SINKS, reverse=bool(number % 2)):
            figures = run(stage, size, SINKS[name])
            if number >= size.warm_ups:
                found[name].append(figures)
    table = Table(title=f"{size.name} (load {os.getloadavg()[0]:.1f})", title_justify="left")
    for heading in ("", *SINKS, "difference", "%", "at most", "from", "to"):
        table.add_column(heading, justify="right" if heading else "left")
    for figure in found["exactly once"][-1]:
        before, after = ([each.get(figure, 0.0) for each in runs] for runs in found.values())
        differences = [ours - theirs for theirs, ours in zip(before, after, strict=True)]
        base, more = statistics.median(before), statistics.median(differences)
        row = [base, statistics.median(after), more, more * 100 / base if base else 0.0]
        words = [f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}" for value in row]
        extremes = [f"{value:+,.0f}" for value in (min(differences), max(differences))]
        table.add_row(figure, *words, AIMS.get(figure, ""), *extremes)
    console.print(table)


def main() -> None:
    """Run both sizes."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    console = Console(width=120)
    console.print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, rounds: {rounds}")
    with (
        tempfile.TemporaryDirectory(prefix="ottla-once-") as home,
        start_ottla(Path(home), {**SETTINGS, "log.retention.check.interval.ms": 1000}) as broker,
        open_stage(broker, ROWS) as stage,
    ):
        for size in (small, large):
            race(stage, size(stage), rounds, console)


if __name__ == "__main__":
    main()
