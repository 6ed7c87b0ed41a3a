"""A Parquet sink as a connector against the same query in plain Spark, in one session on local[2].

    python -m benchmarks.connect_spark [ROUNDS]

Both read a topic of JSON (1,000,000 records of about 100 bytes in four partitions) with `format("ottla")`, and write
Parquet with `available-now`. They work in turn, and begin in turn, too. The first round warms the JVM up and is not
counted. CPU includes Spark's processes, the worker and the broker; the compilers of the JVM count, too. The
figure is the median of the rounds, and of the ratios of the two in one round.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.brokers import SETTINGS, start_ottla
from benchmarks.spark import Stage, open_stage
from benchmarks.wire import new_topic
from ottla.clients import Producer
from ottla.testing.connect import ConnectWorker

RECORDS: Final = 1_000_000
PARTITIONS: Final = 4
SCHEMA: Final = "id BIGINT, carrier STRING, delay INT, note STRING"
CONNECTOR, PLAIN = "connector", "plain Spark"
WAIT_S: Final = 300.0


def value(number: int) -> bytes:
    """Return a record of about 100 bytes."""
    return b'{"id":%d,"carrier":"c%d","delay":%d,"note":"%s"}' % (number, number % 17, number % 90, b"x" * 50)


def fill(stage: Stage) -> tuple[str, int]:
    """Return a topic with the records, and the bytes of their values."""
    topic, size = new_topic(stage.broker, PARTITIONS), 0
    with Producer(bootstrap_servers=stage.broker.bootstrap) as producer:
        for number in range(RECORDS):
            data = value(number)
            size += len(data)
            producer.send(topic, data, partition=number % PARTITIONS)
    return topic, size


def by_spark(stage: Stage, topic: str, place: Path) -> None:
    """Write with plain Spark."""
    options = {
        "kafka.bootstrap.servers": stage.broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "value.format": "json",
        "value.schema": SCHEMA,
    }
    rows = stage.spark.readStream.format("ottla").options(**options).load().select("value.*")
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).start(str(place / "table")).awaitTermination(300)


def by_connector(worker: ConnectWorker, topic: str, place: Path) -> None:
    """Write with a connector, from its start to the end of its query."""
    config = {
        "name": place.name,
        "connector.class": "spark:parquet",
        "topics": topic,
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.value.schema": SCHEMA,
        "spark.option.path": str(place / "table"),
        "spark.checkpoint.dir": str(place / "checkpoints"),
        "spark.trigger": "available-now",
    }
    tasks = worker.start(config)
    deadline_s = time.monotonic() + WAIT_S
    while "processed all records" not in worker.report(tasks[0]).waits_for:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"The connector has not finished: {worker.listener.changes}")
        time.sleep(0.05)
    worker.stop(tasks)


def measured(stage: Stage, work: Callable[[], Any], rows: Callable[[], int]) -> tuple[float, float]:
    """Return the seconds of CPU and of the clock of a write, and check that it has written all records."""
    used, begun = stage.cpu_seconds() + time.process_time(), time.perf_counter()
    work()
    cpu, seconds = stage.cpu_seconds() + time.process_time() - used, time.perf_counter() - begun
    if rows() != RECORDS:
        raise ValueError(f"{rows()} rows instead of {RECORDS}")
    return cpu, seconds


def main(rounds: int) -> None:
    """Run the race, and print the figures."""
    figures: dict[str, list[tuple[float, float]]] = {CONNECTOR: [], PLAIN: []}
    with (
        tempfile.TemporaryDirectory() as directory,
        start_ottla(Path(directory), SETTINGS) as broker,
        open_stage(broker, RECORDS) as stage,
        ConnectWorker(broker.bootstrap, {"key.converter": "ByteArrayConverter"}) as worker,
    ):
        topic, size = fill(stage)
        for number in range(rounds + 1):
            for name in (CONNECTOR, PLAIN) if number % 2 else (PLAIN, CONNECTOR):
                place = Path(directory) / f"{name.replace(' ', '-')}-{number}"

                def work(place: Path = place, name: str = name) -> None:
                    if name is CONNECTOR:
                        by_connector(worker, topic, place)
                    else:
                        by_spark(stage, topic, place)

                def rows(place: Path = place) -> int:
                    return stage.spark.read.parquet(str(place / "table")).count()

                found = measured(stage, work, rows)
                if number:
                    figures[name].append(found)
    show(figures, size / 1e6)


def show(figures: dict[str, list[tuple[float, float]]], megabytes: float) -> None:
    """Print the figures."""
    table = Table(title=f"Parquet sink of {RECORDS:,} records, {megabytes:.0f} MB; load {os.getloadavg()[0]:.1f}")
    for column in ("", "MB per CPU-second", "CPU-s", "s"):
        table.add_column(column, justify="right")
    for name, rounds in figures.items():
        cpu, seconds = (statistics.median(each[at] for each in rounds) for at in (0, 1))
        table.add_row(name, f"{megabytes / cpu:.1f}", f"{cpu:.2f}", f"{seconds:.2f}")
    ratios = [ours[0] / plain[0] for ours, plain in zip(figures[CONNECTOR], figures[PLAIN], strict=True)]
    console = Console()
    console.print(table)
    console.print(
        f"CPU of the connector / plain Spark: {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
