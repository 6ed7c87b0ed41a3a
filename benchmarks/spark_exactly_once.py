"""The sink of `format("ottla")` with exactlyOnce against the same sink without it, in one session on local[2].

    python -m benchmarks.spark_exactly_once [ROUNDS]

Small: micro-batches of ten records of a topic, one task. Large: micro-batches of 500,000 rows of 100 B, six tasks. The
two sinks write in turn, round by round, and begin in turn, too. CPU is that of Spark's processes and the broker's.
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

from benchmarks.brokers import start_ottla
from benchmarks.spark import KEY, OURS, PARTITIONS, VALUE, Stage, open_stage, progress, rows_of, trigger_s, wait
from benchmarks.wire import Figures, new_topic
from ottla.clients import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = 1_000_000
SMALL_ROWS = 10
SINKS = {"at least once": {}, "exactly once": {"exactlyOnce": "true"}}
AIMS = {"ms": "30 ms more", "CPU ms": "1.05", "rows/s": "0.80"}


@dataclass(frozen=True)
class Size:
    """Micro-batches; those before `first` are not counted."""

    name: str
    rows: DataFrame
    partitions: int
    first: int
    last: int


def small(stage: Stage) -> Size:
    """Batches of the source of Ottla, from a topic that is filled already, so that no batch waits for records."""
    first, last = 15, 75
    topic = new_topic(stage.broker, 1)
    with Producer(bootstrap_servers=stage.broker.bootstrap) as producer:
        for _ in range((last + 20) * SMALL_ROWS):
            producer.send(topic, b"small", partition=0)
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=SMALL_ROWS)
    rows = stage.spark.readStream.format(OURS).options(**options).load().select("key", "value")
    return Size("ten records a micro-batch", rows, 1, first, last)


def large(stage: Stage) -> Size:
    """Batches of half a million rows that Spark generates."""
    options = {"rowsPerBatch": ROWS // 2, "numPartitions": PARTITIONS}
    source = stage.spark.readStream.format("rate-micro-batch").options(**options).load()
    rows = source.selectExpr(KEY.format("value"), VALUE.format("value"))
    return Size("500,000 rows a micro-batch", rows, PARTITIONS, 2, 6)


def run(stage: Stage, size: Size, options: dict[str, str]) -> Figures:
    """The median time of a micro-batch, its CPU, and rows a second."""
    writer = size.rows.writeStream.format(OURS).options(
        **stage.options(topic=new_topic(stage.broker, size.partitions), **options)
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        wait(query, lambda: len(progress(query)) > size.first)
        before, used = len(progress(query)), stage.cpu_seconds()
        wait(query, lambda: len(progress(query)) > size.last)
        used, after = stage.cpu_seconds() - used, len(progress(query))
        query.stop()
    counted = progress(query)[before:after]
    times = [float(row["durationMs"]["triggerExecution"]) for row in counted]
    return {
        "ms": statistics.median(times),
        "CPU ms": used * 1000 / len(counted),
        "rows/s": rows_of(counted) / trigger_s(counted),
    }


def race(stage: Stage, size: Size, rounds: int, console: Console) -> None:
    """Print the figures of each round and their medians."""
    found: dict[str, list[Figures]] = {name: [] for name in SINKS}
    table = Table("round", "sink", *AIMS, title=size.name, title_justify="left")
    for number in range(rounds + 1):
        names = sorted(SINKS, reverse=bool(number % 2))
        for name in names:
            figures = run(stage, size, SINKS[name])
            if number:  # the first round warms up
                found[name].append(figures)
                table.add_row(str(number), name, *(f"{figures[figure]:,.0f}" for figure in AIMS))
    medians = {
        name: {figure: statistics.median(each[figure] for each in rows) for figure in AIMS}
        for name, rows in found.items()
    }
    for name, figures in medians.items():
        table.add_row("median", name, *(f"{figures[figure]:,.0f}" for figure in AIMS))
    before, after = medians.values()
    table.add_row("", "difference", *(f"{after[figure] - before[figure]:+,.0f}" for figure in AIMS))
    table.add_row("", "ratio", *(f"{after[figure] / before[figure]:.3f}" for figure in AIMS))
    table.add_row("", "must reach", *AIMS.values())
    console.print(table)


def main() -> None:
    """Run both sizes."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    console = Console(width=100)
    console.print(f"load before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, rounds: {rounds}")
    with (
        tempfile.TemporaryDirectory(prefix="ottla-once-") as home,
        start_ottla(Path(home)) as broker,
        open_stage(broker, ROWS) as stage,
    ):
        for size in (small, large):
            race(stage, size(stage), rounds, console)
            console.print(f"load: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
