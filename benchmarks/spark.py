"""The races on Spark: `format("ottla")` against the JVM's connector, one session on local[2], same broker and records.

The two read and write in turn, round by round, after warm-ups that are not counted: the JVM compiles both ways. CPU is
that of Spark's processes (the JVM, Python's workers) and the broker's, since where two cores do all the work the rest
of the machine is in every figure of time, and hardly in this one.

Spark fetches the connector from Maven's repository, unless $OTTLA_CONNECTOR_JARS names its jars, comma-separated.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, new_topic
from ottla.clients import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

OURS, THEIRS = "ottla", "kafka"
WARM_UPS = 3
PARTITIONS = 6
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_TICKS = os.sysconf("SC_CLK_TCK")
ROWS_S, CPU, MS = "rows/s", "CPU s per million", "ms"


@dataclass
class Stage:
    """A session, a broker, and topics by what is in them."""

    spark: SparkSession
    broker: Broker
    rows: int
    topics: dict[str, str] = field(default_factory=dict)

    def filled(self, what: str, rows: Callable[[int], bytes]) -> str:
        """A topic with `self.rows` records, `rows(i)` each; filled when first asked for."""
        if what not in self.topics:
            topic = new_topic(self.broker, PARTITIONS)
            with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
                for start in range(0, self.rows, 50_000):
                    numbers = range(start, min(start + 50_000, self.rows))
                    keys = pa.array([b"key-%012d" % i for i in numbers])
                    producer.send_batch(topic, pa.table({"key": keys, "value": pa.array([rows(i) for i in numbers])}))
            self.topics[what] = topic
        return self.topics[what]

    def options(self, **more: object) -> dict[str, str]:
        """The options of both formats."""
        return {"kafka.bootstrap.servers": self.broker.bootstrap, **{name: str(value) for name, value in more.items()}}

    def read(self, who: str, topic: str, **more: object) -> DataFrame:
        """All of a topic as a table."""
        return self.spark.read.format(who).options(**self.options(subscribe=topic, **more)).load()

    def cpu_seconds(self) -> float:
        """What Spark's processes and the broker have used so far."""
        rows = {}
        for process in Path("/proc").iterdir():
            try:
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split() if process.name.isdigit() else None
            except OSError:  # it ended
                continue
            if fields is not None:
                rows[int(process.name)] = (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
        total = 0.0
        for process_id, (_, used) in rows.items():
            above = process_id
            while above in rows and above not in (os.getpid(), self.broker.pid):
                above = rows[above][0]
            if process_id != os.getpid() and above == os.getpid():
                total += used
        return total + self.broker.cpu_seconds()


Run = Callable[[Stage, str], Figures]


@dataclass(frozen=True)
class Race:
    """One race: `run` does it once for OURS or THEIRS, `aims` are what our figure over theirs is to reach."""

    title: str
    run: Run
    aims: dict[str, float]


@contextmanager
def _stage(broker: Broker, rows: int) -> Iterator[Stage]:
    from ottla.spark import session

    with tempfile.TemporaryDirectory(prefix="ottla-spark-") as local:
        spark = session(
            "benchmarks", "local[2]",
            **{
                **_connector(), "spark.ui.enabled": False, "spark.ui.showConsoleProgress": False,
                "spark.log.level": "ERROR", "spark.driver.memory": "3g", "spark.local.dir": local,
            },
        )  # fmt: skip
        try:
            yield Stage(spark, broker, rows)
        finally:
            spark.stop()


def _connector() -> dict[str, str]:
    """The setting that gives a session the JVM's connector."""
    import pyspark

    jars = os.environ.get("OTTLA_CONNECTOR_JARS")
    return {"spark.jars": jars} if jars else {"spark.jars.packages": f"{PACKAGE}:{pyspark.__version__}"}


# -- what is raced -------------------------------------------------------------------------------------------------


def _timed(stage: Stage, rows: int, work: Callable[[], float | None]) -> Figures:
    """`work` may say which of its seconds count."""
    used, begin = stage.cpu_seconds(), time.perf_counter()
    seconds = work()
    seconds = time.perf_counter() - begin if seconds is None else seconds
    return {ROWS_S: rows / seconds, CPU: (stage.cpu_seconds() - used) * 1e6 / rows}


_FILLER = os.urandom(284)


def _plain(number: int) -> bytes:
    return b"%08d" % number + _FILLER[8:]


def _json(number: int) -> bytes:
    return (
        b'{"id":%d,"carrier":"%s","origin":"JFK","delay":%d.25,"cancelled":%s,"note":"flight number %d of the year"}'
        % (number, (b"AA", b"DL", b"UA")[number % 3], number % 90, b"true" if number % 50 else b"false", number)
    )


_DDL = "id BIGINT, carrier STRING, origin STRING, delay DOUBLE, cancelled BOOLEAN, note STRING"


def _count(stage: Stage, who: str) -> Figures:
    topic = stage.filled("plain", _plain)

    def work() -> None:
        assert stage.read(who, topic).count() == stage.rows

    return _timed(stage, stage.rows, work)


def _use(stage: Stage, who: str) -> Figures:
    topic = stage.filled("plain", _plain)

    def work() -> None:
        row = stage.read(who, topic).selectExpr("sum(length(key))", "sum(length(value))").first()
        assert row is not None
        assert tuple(row) == (16 * stage.rows, 284 * stage.rows)

    return _timed(stage, stage.rows, work)


def _to_arrow(stage: Stage, who: str) -> Figures:
    topic = stage.filled("plain", _plain)

    def work() -> None:
        assert stage.read(who, topic).select("key", "value", "offset").toArrow().num_rows == stage.rows

    return _timed(stage, stage.rows, work)


def _typed_json(stage: Stage, who: str) -> Figures:
    topic = stage.filled("json", _json)

    def work() -> None:
        if who == OURS:
            rows = stage.read(who, topic, **{"value.format": "json", "value.schema": _DDL}).selectExpr("value v")
        else:
            rows = stage.read(who, topic).selectExpr(f"from_json(cast(value as string), '{_DDL}') v")
        sums = "sum(v.id)", "sum(v.delay)", "sum(length(v.carrier || v.origin || v.note))", "count_if(v.cancelled)"
        row = rows.selectExpr(*sums).first()
        assert row is not None
        assert row[0] == stage.rows * (stage.rows - 1) // 2

    return _timed(stage, stage.rows, work)


def _progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """What each micro-batch with rows told, in order."""
    rows = [json.loads(row.json) if hasattr(row, "json") else dict(row) for row in query.recentProgress]
    return [row for row in rows if row["numInputRows"]]


def _trigger_s(rows: list[dict[str, Any]]) -> float:
    return sum(row["durationMs"]["triggerExecution"] for row in rows) / 1000


def _stream_read(stage: Stage, who: str) -> Figures:
    topic = stage.filled("plain", _plain)
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=stage.rows // 4)

    def work() -> float:
        rows = stage.spark.readStream.format(who).options(**options).load().select("key", "value")
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = stream.trigger(availableNow=True).start()
            assert query.awaitTermination(int(DEADLINE_S))
        told = _progress(query)
        assert sum(row["numInputRows"] for row in told) == stage.rows
        # The first has the query's start in it; after the last, a few rows are left that rounding did not divide.
        later = [row for row in told[1:] if row["numInputRows"] > stage.rows // 8]
        return _trigger_s(later) * stage.rows / sum(row["numInputRows"] for row in later)

    return _timed(stage, stage.rows, work)


_KEY = "cast(cast({} as string) as binary) key"
_VALUE = "cast(concat('" + 84 * "x" + "', cast({} as string)) as binary) value"


def _write(stage: Stage, who: str) -> Figures:
    rows = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(_KEY.format("id"), _VALUE.format("id"))
    options = stage.options(topic=new_topic(stage.broker, PARTITIONS))
    return _timed(stage, stage.rows, lambda: rows.write.format(who).options(**options).mode("append").save())


def _stream_write(stage: Stage, who: str) -> Figures:
    """Four micro-batches, of which the first is not counted."""
    size = stage.rows // 4
    source = stage.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=size, numPartitions=PARTITIONS)
    rows = source.load().selectExpr(_KEY.format("value"), _VALUE.format("value"))
    options = stage.options(topic=new_topic(stage.broker, PARTITIONS))

    def work() -> float:
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = rows.writeStream.format(who).options(**options).option("checkpointLocation", checkpoint)
            query = stream.start()
            _wait(query, lambda: len(_progress(query)) > 3)
            query.stop()
        later = _progress(query)[1:4]
        return _trigger_s(later) * stage.rows / sum(row["numInputRows"] for row in later)

    figures = _timed(stage, stage.rows, work)
    del figures[CPU]  # how many batches there were before the query stopped is chance
    return figures


def _tiny(stage: Stage, who: str) -> Figures:
    """Ten records at a time, to a partition; the next when they are through."""
    topic = new_topic(stage.broker, 1)
    options = stage.options(subscribe=topic, startingOffsets="earliest")
    rows = stage.spark.readStream.format(who).options(**options).load().select("key", "value")
    with tempfile.TemporaryDirectory() as checkpoint, Producer(bootstrap_servers=stage.broker.bootstrap) as producer:
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        for number in range(20):
            for _ in range(10):
                producer.send(topic, b"tiny", partition=0)
            producer.flush()
            _wait(query, lambda number=number: len(_progress(query)) > number)  # type: ignore[misc]
        query.stop()
    times = [row["durationMs"]["triggerExecution"] for row in _progress(query)[5:]]
    asked = [row["durationMs"].get("latestOffset", 0) for row in _progress(query)[5:]]
    return {MS: statistics.median(times), "ms to ask": statistics.median(asked)}


def _wait(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        failed = query.exception()
        if failed is not None:
            raise failed
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {query.lastProgress}"
        time.sleep(0.005)


RACES: dict[str, Race] = {
    "spark-count": Race("count(*) of 300 B rows", _count, {ROWS_S: 1.5}),
    "spark-read": Race("batch read of 300 B rows, key and value used", _use, {ROWS_S: 1.5}),
    "spark-stream-read": Race("streaming read of 300 B rows, key and value", _stream_read, {ROWS_S: 1.5}),
    "spark-arrow": Race("batch read to Arrow on the driver", _to_arrow, {ROWS_S: 2}),
    "spark-json": Race("typed columns of JSON, against from_json", _typed_json, {ROWS_S: 2}),
    "spark-write": Race("batch write of 100 B rows", _write, {ROWS_S: 2}),
    "spark-stream-write": Race("streaming write of 100 B rows", _stream_write, {ROWS_S: 2}),
    "spark-tiny": Race("micro-batch of ten records", _tiny, {MS: 1}),
}


def run_races(
    names: list[str], broker: Broker, rounds: int, scale: float, console: Console
) -> dict[str, dict[str, Figures]]:
    """Run them in one session and print their tables; medians by race and by OURS and THEIRS."""
    found = {}
    with _stage(broker, int(1_000_000 * scale)) as stage:
        for name in names:
            race = RACES[name]
            runs: dict[str, list[Figures]] = {THEIRS: [], OURS: []}
            for number in range(WARM_UPS + rounds):
                for who, figures in runs.items():
                    figures.append(race.run(stage, who))
                    if number < WARM_UPS:
                        figures.clear()
            medians = {
                who: {figure: statistics.median(each[figure] for each in figures) for figure in figures[0]}
                for who, figures in runs.items()
            }
            _print(name, race, medians, console)
            found[name] = medians
    return found


def _print(name: str, race: Race, medians: dict[str, Figures], console: Console) -> None:
    table = Table(title=f"{name}: {race.title}", title_justify="left")
    for heading in ("figure", "ottla", "JVM connector", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure, ours in medians[OURS].items():
        theirs = medians[THEIRS][figure]
        ratio = ours / theirs if theirs else float("nan")
        aim = race.aims.get(figure)
        sign = "" if aim is None else f"{'≥' if figure == ROWS_S else '≤'} {aim:g}"
        table.add_row(figure, f"{ours:,.2f}", f"{theirs:,.2f}", f"{ratio:.2f}", sign)
    console.print(table)
