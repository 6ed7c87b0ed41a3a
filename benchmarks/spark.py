"""The races on Spark: `format("ottla")` against the JVM's connector, one session on local[2], same broker and records.

The two read and write in turn, round by round, after warm-ups that are not counted: the JVM compiles both ways. The
connector waits half a second wherever a partition ends (a fetch that nothing answers), also on stock Kafka; "within" is
therefore raced as well: a read that stops before the end. CPU includes Spark's processes (the JVM, Python's workers)
and the broker, since where two cores do all the work the rest of the machine is in every figure of time, and hardly in
this one.

`make peers` fetches the connector and spark-avro, unless $OTTLA_CONNECTOR_JARS names their jars, comma-separated.
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
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from rich.console import Console
from rich.table import Table

from benchmarks import results, spark_memory
from benchmarks.brokers import Broker
from benchmarks.process_times import ProcessTimes, children_of
from benchmarks.wire import DEADLINE_S, Figures, new_topic
from ottla.clients import Admin, Producer, TopicPartition
from ottla.clients.admin import OffsetSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OURS, THEIRS = "ottla", "kafka"
PEER = "JVM connector"
WARM_UPS = 3
PARTITIONS = 6
BROKER = "broker"
ROWS_S, CPU, MS = "rows/s", "CPU s per million", "ms"
WITHIN, IDLE_MS, IDLE_CPU = "rows/s within", "ms of a trigger", "CPU ms per trigger"
IDLE_S, IDLE_TRIGGERS_S = 5.0, 10


@dataclass
class Stage:
    """A session, a broker, and topics by what is in them."""

    spark: SparkSession
    broker: Broker
    rows: int
    processes: ProcessTimes
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
        """Return the CPU that Spark's processes and the broker have used so far."""
        return sum(self.cpu_parts().values())

    def cpu_parts(self) -> dict[str, float]:
        """The same by part."""
        return {**self.processes.seconds(), BROKER: self.broker.cpu_seconds()}


Run = Callable[[Stage, str], Figures]


@dataclass(frozen=True)
class Race:
    """One race: `run` does it once for OURS or THEIRS, `aims` are what our figure over theirs is to reach."""

    title: str
    run: Run
    aims: dict[str, float]
    warm_ups: int = WARM_UPS
    once: bool = False


@contextmanager
def open_stage(broker: Broker, rows: int) -> Iterator[Stage]:
    from ottla.spark import session

    with tempfile.TemporaryDirectory(prefix="ottla-spark-") as local:
        settings: dict[str, Any] = {
            **spark_memory.connector(), "spark.ui.enabled": False, "spark.ui.showConsoleProgress": False,
            "spark.log.level": "FATAL", "spark.driver.memory": "3g", "spark.local.dir": local,
        }  # fmt: skip
        spark = session("benchmarks", "local[2]", None, **settings)
        is_open = True
        times = ProcessTimes(children_of(os.getpid(), broker.pid))
        times.watch(lambda: is_open)
        try:
            yield Stage(spark, broker, rows, times)
        finally:
            is_open = False
            spark.stop()


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


def _use_within(stage: Stage, who: str) -> Figures:
    """All but the last thousand of each partition."""
    topic = stage.filled("plain", _plain)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Admin(stage.broker.bootstrap) as admin:
        found = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    ends = {str(tp.partition): max(at.offset - 1_000, 0) for tp, at in found.items()}
    rows = sum(ends.values())

    def work() -> None:
        table = stage.read(who, topic, endingOffsets=json.dumps({topic: ends}))
        row = table.selectExpr("sum(length(key))", "sum(length(value))").first()
        assert row is not None
        assert tuple(row) == (16 * rows, 284 * rows)

    return _timed(stage, rows, work)


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


_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "carrier", "type": "string"},
            {"name": "origin", "type": "string"},
            {"name": "delay", "type": "double"},
            {"name": "cancelled", "type": "boolean"},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
_FLIGHTS = (
    "id", "array('AA', 'DL', 'UA')[id % 3] carrier", "'JFK' origin", "id % 90 + 0.25d delay", "id % 50 > 0 cancelled",
    "if(id % 10 = 0, null, concat('flight number ', id, ' of the year')) note",
)  # fmt: skip


def _typed_avro(stage: Stage, who: str) -> Figures:
    from pyspark.sql.avro.functions import from_avro

    if "avro" not in stage.topics:
        stage.topics["avro"] = topic = new_topic(stage.broker, PARTITIONS)
        rows = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(*_FLIGHTS)
        options = stage.options(topic=topic, **{"value.format": "avro", "value.avro.schema": _AVRO})
        rows.write.format(OURS).options(**options).mode("append").save()
    topic = stage.topics["avro"]

    def work() -> None:
        if who == OURS:
            rows = stage.read(who, topic, **{"value.format": "avro", "value.avro.schema": _AVRO}).selectExpr("value v")
        else:
            rows = stage.read(who, topic).select(from_avro("value", _AVRO).alias("v"))
        sums = "sum(v.id)", "sum(v.delay)", "sum(length(v.carrier || v.origin || v.note))", "count_if(v.cancelled)"
        row = rows.selectExpr(*sums).first()
        assert row is not None
        assert row[0] == stage.rows * (stage.rows - 1) // 2

    return _timed(stage, stage.rows, work)


def _write_avro(stage: Stage, who: str) -> Figures:
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import struct

    rows = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(*_FLIGHTS)
    more = {"value.format": "avro"} if who == OURS else {}
    if who == THEIRS:
        rows = rows.select(to_avro(struct(*rows.columns)).alias("value"))
    options = stage.options(topic=new_topic(stage.broker, PARTITIONS), **more)
    return _timed(stage, stage.rows, lambda: rows.write.format(who).options(**options).mode("append").save())


def progress(query: StreamingQuery) -> list[dict[str, Any]]:
    """Return the progress of each micro-batch with rows, in order."""
    rows = [json.loads(row.json) if hasattr(row, "json") else dict(row) for row in query.recentProgress]
    return [row for row in rows if row["numInputRows"]]


def trigger_s(rows: list[dict[str, Any]]) -> float:
    return float(sum(row["durationMs"]["triggerExecution"] for row in rows)) / 1000


def rows_of(rows: list[dict[str, Any]]) -> int:
    return sum(int(row["numInputRows"]) for row in rows)


def _stream_read(stage: Stage, who: str) -> Figures:
    topic = stage.filled("plain", _plain)
    options = stage.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=stage.rows // 4)
    within = 0.0

    def work() -> float:
        nonlocal within
        rows = stage.spark.readStream.format(who).options(**options).load().select("key", "value")
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = stream.trigger(availableNow=True).start()
            assert query.awaitTermination(int(DEADLINE_S))
        told = progress(query)
        assert sum(row["numInputRows"] for row in told) == stage.rows
        # The first has the query's start in it; after the last, a few rows are left that rounding did not divide.
        later = [row for row in told[1:] if row["numInputRows"] > stage.rows // 8]
        within = rows_of(later[:-1]) / trigger_s(later[:-1])  # the last one gets to the end
        return trigger_s(later) * stage.rows / rows_of(later)

    return {**_timed(stage, stage.rows, work), WITHIN: within}


KEY = "cast(cast({} as string) as binary) key"
VALUE = "cast(concat('" + 84 * "x" + "', cast({} as string)) as binary) value"


def _write(stage: Stage, who: str) -> Figures:
    rows = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(KEY.format("id"), VALUE.format("id"))
    options = stage.options(topic=new_topic(stage.broker, PARTITIONS))
    return _timed(stage, stage.rows, lambda: rows.write.format(who).options(**options).mode("append").save())


def _write_json(stage: Stage, who: str) -> Figures:
    rows = stage.spark.range(0, stage.rows, 1, PARTITIONS).selectExpr(*_columns("id"))
    options = stage.options(topic=new_topic(stage.broker, PARTITIONS))
    writer = _as_json(rows, who).write.format(who).options(**options).options(**_asked(who))
    return _timed(stage, stage.rows, lambda: writer.mode("append").save())


def _columns(number: str) -> list[str]:
    """Typed columns of a row by its number: what is written as JSON of 120 to 130 bytes."""
    return [
        f"{number} id", f"array('AA', 'DL', 'UA')[{number} % 3] carrier", "'JFK' origin",
        f"{number} % 90 + 0.25D delay", f"{number} % 50 > 0 cancelled",
        f"concat('flight number ', {number}, ' of the year') note",
    ]  # fmt: skip


def _as_json(rows: DataFrame, who: str) -> DataFrame:
    return rows if who == OURS else rows.selectExpr("to_json(struct(*)) value")


def _asked(who: str) -> dict[str, str]:
    return {"value.format": "json"} if who == OURS else {}


def _stream_write(stage: Stage, who: str) -> Figures:
    return _micro_batches(stage, who, [KEY.format("value"), VALUE.format("value")])


def _stream_write_json(stage: Stage, who: str) -> Figures:
    return _micro_batches(stage, who, _columns("value"), as_json=True)


def _micro_batches(stage: Stage, who: str, columns: list[str], *, as_json: bool = False) -> Figures:
    """Four micro-batches of half the rows each are written, of which the first is not counted."""
    size = stage.rows // 2
    source = stage.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=size, numPartitions=PARTITIONS)
    rows = source.load().selectExpr(*columns)
    options = {**stage.options(topic=new_topic(stage.broker, PARTITIONS)), **(_asked(who) if as_json else {})}
    rows = _as_json(rows, who) if as_json else rows

    def work() -> float:
        with tempfile.TemporaryDirectory() as checkpoint:
            stream = rows.writeStream.format(who).options(**options).option("checkpointLocation", checkpoint)
            query = stream.start()
            wait(query, lambda: len(progress(query)) > 3)
            query.stop()
        later = progress(query)[1:4]
        return trigger_s(later) * stage.rows / rows_of(later)

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
            wait(query, lambda number=number: len(progress(query)) > number)  # type: ignore[misc]
        query.stop()
    times = [row["durationMs"]["triggerExecution"] for row in progress(query)[5:]]
    asked = [row["durationMs"].get("latestOffset", 0) for row in progress(query)[5:]]
    return {MS: statistics.median(times), "ms to ask": statistics.median(asked)}


def _idle(stage: Stage, who: str) -> Figures:
    """A query with ten triggers a second, and nothing to read."""
    topic = new_topic(stage.broker, PARTITIONS)
    stage.spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "500")
    options = stage.options(subscribe=topic, startingOffsets="earliest")
    rows = stage.spark.readStream.format(who).options(**options).load().select("key", "value")
    with tempfile.TemporaryDirectory() as checkpoint, Producer(bootstrap_servers=stage.broker.bootstrap) as producer:
        producer.send(topic, b"first")
        producer.flush()
        stream = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = stream.trigger(processingTime=f"{1000 // IDLE_TRIGGERS_S} milliseconds").start()
        wait(query, lambda: len(progress(query)) > 0)
        time.sleep(1)
        used = stage.cpu_seconds()
        time.sleep(IDLE_S)
        used = stage.cpu_seconds() - used
        query.stop()
        told = [json.loads(row.json) for row in query.recentProgress]
    times = [row["durationMs"]["triggerExecution"] for row in told[1:] if not row["numInputRows"]]
    return {IDLE_MS: statistics.median(times), IDLE_CPU: used * 1000 / (IDLE_S * IDLE_TRIGGERS_S)}


def _large(stage: Stage, who: str) -> Figures:
    records = max(stage.rows // 1_000, 100)
    if "large" not in stage.topics:
        stage.topics["large"] = spark_memory.fill_large(stage.broker, records)
    return spark_memory.peak(who, stage.broker, stage.topics["large"], records)


def _wide(stage: Stage, who: str) -> Figures:
    records = 10_000
    if "wide" not in stage.topics:
        stage.topics["wide"] = spark_memory.fill_wide(stage.broker, records)
    return spark_memory.peak(who, stage.broker, stage.topics["wide"], records)


def wait(query: StreamingQuery, condition: Callable[[], bool], pause_s: float = 0.005) -> None:
    """Each question costs the JVM: ask seldom where its CPU is counted."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        failed = query.exception()
        if failed is not None:
            raise failed
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {query.lastProgress}"
        time.sleep(pause_s)


RACES: dict[str, Race] = {
    "spark-count": Race("count(*) of 300 B rows", _count, {ROWS_S: 1.5}),
    "spark-read": Race("batch read of 300 B rows, key and value used", _use, {ROWS_S: 1.5}),
    "spark-read-within": Race("the same, up to a thousand records before the ends", _use_within, {ROWS_S: 1.5}),
    "spark-stream-read": Race("streaming read of 300 B rows, key and value", _stream_read, {ROWS_S: 1.5, WITHIN: 1.5}),
    "spark-arrow": Race("batch read to Arrow on the driver", _to_arrow, {ROWS_S: 2}),
    "spark-json": Race("typed columns of JSON, against from_json", _typed_json, {ROWS_S: 2}),
    "spark-avro": Race("typed columns of Avro, against from_avro", _typed_avro, {ROWS_S: 2, CPU: 0.5}),
    "spark-avro-write": Race("batch write of columns as Avro, against to_avro", _write_avro, {ROWS_S: 2, CPU: 0.5}),
    "spark-write": Race("batch write of 100 B rows", _write, {ROWS_S: 2}),
    "spark-stream-write": Race("streaming write of 100 B rows, 500,000 a micro-batch", _stream_write, {ROWS_S: 2}),
    "spark-json-write": Race("batch write of typed columns as JSON, against to_json", _write_json, {ROWS_S: 2}),
    "spark-json-stream-write": Race("streaming write of them", _stream_write_json, {ROWS_S: 2}),
    "spark-tiny": Race("micro-batch of ten records", _tiny, {MS: 1}, warm_ups=1),
    "spark-idle": Race("ten triggers a second without news", _idle, {IDLE_MS: 1, IDLE_CPU: 1}, warm_ups=1),
    "spark-large": Race(
        "streaming read of 1 MB records, a Spark of its own", _large, {spark_memory.TOTAL: 1}, warm_ups=0, once=True
    ),
    "spark-wide": Race(
        "streaming read of 1,000 partitions with 10 records each, a Spark of its own",
        _wide,
        {spark_memory.TOTAL: 1},
        warm_ups=0,
        once=True,
    ),
}


def run_races(
    names: list[str], broker: Broker, rounds: int, scale: float, console: Console, warm_ups: int = WARM_UPS
) -> Iterator[tuple[str, dict[str, Figures]]]:
    """Run them in one session and print their tables; each race's name and medians, by OURS and THEIRS."""
    with open_stage(broker, int(1_000_000 * scale)) as stage:
        for name in names:
            race = RACES[name]
            cold = min(race.warm_ups, warm_ups)
            runs: dict[str, list[Figures]] = {THEIRS: [], OURS: []}
            for number in range(cold + (1 if race.once else rounds)):
                for who, figures in runs.items():
                    figures.append(race.run(stage, who))
                    if number < cold:
                        figures.clear()
            medians = {
                who: {figure: statistics.median(each[figure] for each in figures) for figure in figures[0]}
                for who, figures in runs.items()
            }
            _print(name, race, medians, console)
            yield name, medians


def _print(name: str, race: Race, medians: dict[str, Figures], console: Console) -> None:
    table = Table(title=f"{name}: {race.title}", title_justify="left")
    for heading in ("figure", "ottla", PEER, "ratio", "aim"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure, ours in medians[OURS].items():
        theirs = medians[THEIRS][figure]
        ratio = ours / theirs if theirs else float("nan")
        aim = race.aims.get(figure)
        sign = "" if aim is None else f"{'≥' if results.more_is_better(figure) else '≤'} {aim:g}"
        table.add_row(figure, f"{ours:,.2f}", f"{theirs:,.2f}", f"{ratio:.2f}", sign)
    console.print(table)
