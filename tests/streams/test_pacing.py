"""Pipelines with a latency: records that arrive slowly share micro-batches, and nothing else is different."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StatefulProcessor

from ottla.cli.main import main
from ottla.streams import Output, Pipeline, pipeline, stream, to
from ottla.streams.publishing import Publisher
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

WAIT_S = 90.0
AT = "number INT, at TIMESTAMP"


@pipeline(exactly_once=True)
def copied(rows: Any = stream("rows", "json", schema=AT)) -> Output:
    return to("results", rows.selectExpr("cast(number as string) value"), value="text")


@pipeline(exactly_once=True)
def counted(rows: Any = stream("rows", "json", schema=AT)) -> Output:
    keys = rows.selectExpr("'all' key").groupBy("key").count()
    return to("results", keys.selectExpr("key", "cast(count as string) value"), key="key", value="text", mode="updates")


@pipeline(exactly_once=True)
def windowed(rows: Any = stream("rows", "json", schema=AT, time="at")) -> Output:
    """Closes a window when a later record has moved the watermark: without a record of the next micro-batch."""
    windows = rows.groupBy(F.window("at", "10 seconds")).agg(F.max("number").alias("number"))
    return to("results", windows.selectExpr("cast(number as string) value"), value="text", mode="final")


@pipeline(exactly_once=True)
def checked(rows: Any = stream("rows", "json", schema=AT, bad="topic:invalid")) -> Output:
    return to("results", rows.selectExpr("cast(number as string) value"), value="text")


@pipeline(exactly_once=True)
def joined(
    rows: Any = stream("rows", "json", schema=AT, time="at"),
    others: Any = stream("others", "json", schema="other INT, since TIMESTAMP", time="since", idle="1 second"),
) -> Output:
    """Rows without another one: an idle stream must move the event time."""
    both = rows.join(others, F.expr("number = other AND since BETWEEN at AND at + INTERVAL 1 second"), "leftOuter")
    return to("results", both.where("other IS NULL").selectExpr("cast(number as string) value"), value="text")


class Delayed(StatefulProcessor):
    """Returns a number by a timer of the clock."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._number = handle.getValueState("number", "number INT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self._number.update((row.number,))
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(value=str(self._number.get()[0]))

    def close(self) -> None:
        pass


@pipeline(exactly_once=True)
def delayed(rows: Any = stream("rows", "json", schema=AT)) -> Output:
    found = rows.groupBy("number").transformWithState(
        statefulProcessor=Delayed(), outputStructType="value STRING", outputMode="append", timeMode="processingTime"
    )
    return to("results", found, value="text")


def settings(ottla: Ottla, directory: Path, latency_ms: int | None = None) -> Settings:
    return Settings({"bootstrap.servers": ottla.bootstrap}, str(directory), latency_ms=latency_ms)


@contextmanager
def running(spark: SparkSession, program: Pipeline, given: Settings, *receivers: Publisher) -> Iterator[Runner]:
    runner = Runner(spark, [program], given, *receivers)
    ending = threading.Event()
    watching = threading.Thread(target=runner.watch, args=[ending])
    try:
        runner.start()
        watching.start()
        yield runner
    finally:
        ending.set()
        watching.join(WAIT_S)
        runner.stop()


def send(ottla: Ottla, *numbers: int) -> None:
    """Send records whose event time is a minute later for each number."""
    for number in numbers:
        ottla.produce("rows", json.dumps({"number": number, "at": f"2026-01-01T10:{number:02}:00Z"}))


def results(ottla: Ottla) -> list[str]:
    return [(record.value or b"").decode() for record in ottla.records("results")]


def make_topics(ottla: Ottla, partitions: int = 2) -> None:
    for topic in ("rows", "others", "results", "invalid"):
        ottla.topic(topic, partitions if topic == "rows" else 1)


def expected(program: Pipeline, most: int) -> list[str]:
    """The last results after the numbers from 0 to before `most`, one after another."""
    if program is counted:
        return [str(most)]
    # The last window is open; the last row without another one may still get it.
    return [str(number) for number in range(most - 1 if program in (windowed, joined) else most)]


@pytest.mark.long
@pytest.mark.parametrize("max_records", [None, 100], ids=["unlimited", "limited"])
@pytest.mark.parametrize("program", [copied, counted, windowed, checked, joined, delayed], ids=lambda each: each.name)
def test_paced_pipeline_writes_each_result_once_also_after_a_restart(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, program: Pipeline, max_records: int | None
) -> None:
    make_topics(ottla)
    paced = replace(program, latency="700 ms", max_records=max_records)

    def has_results(most: int) -> bool:
        wanted, found = expected(program, most), results(ottla)
        return found[-1:] == wanted if program is counted else set(found) == set(wanted)

    for numbers in (range(3), range(3, 5)):
        with running(ottla_spark, paced, settings(ottla, tmp_path)):
            for number in numbers:
                send(ottla, number)
                if program in (windowed, joined):  # each moves the watermark on its own
                    ottla.wait_until(lambda most=number + 1: has_results(most), WAIT_S)  # type: ignore[misc]
            ottla.wait_until(lambda most=numbers[-1] + 1: has_results(most), WAIT_S)  # type: ignore[misc]
    found = results(ottla)
    assert len(found) == len(set(found)), "a result was written twice"


def test_records_that_arrive_slowly_share_micro_batches(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    make_topics(ottla)
    with running(ottla_spark, copied, settings(ottla, tmp_path, latency_ms=3000)) as runner:
        send(ottla, 0)
        ottla.wait_until(lambda: len(results(ottla)) == 1, WAIT_S)
        begin, (before,) = time.monotonic(), runner.statuses()
        for number in range(1, 51):
            send(ottla, number)
            time.sleep(0.2)
        ottla.wait_until(lambda: len(results(ottla)) == 51, WAIT_S)
        passed_s, (after,) = time.monotonic() - begin, runner.statuses()
        # Both statuses may lack the last micro-batch.
        assert after.batches - before.batches <= passed_s / 3 + 2


def test_backlog_with_max_records_is_processed_without_pauses(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    make_topics(ottla)
    send(ottla, *range(60))
    limited = replace(copied, max_records=10, latency="10 minutes")
    with running(ottla_spark, limited, settings(ottla, tmp_path)) as runner:
        ottla.wait_until(lambda: len(results(ottla)) == 60, WAIT_S)
        (status,) = runner.statuses()
    assert status.batches >= 5, "max_records limits each of them"


def test_stop_does_not_wait_for_the_next_micro_batch_and_why_sees_no_problem_in_the_pause(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topics(ottla)
    given = settings(ottla, tmp_path, latency_ms=600_000)
    send(ottla, 0)
    publisher = Publisher(given.client)
    try:
        with running(ottla_spark, copied, given, publisher):
            ottla.wait_until(lambda: len(results(ottla)) == 1, WAIT_S)
            time.sleep(3)
            assert main(["stream", "why", "copied", "--fail", "-b", ottla.bootstrap]) == 0
            begin = time.monotonic()
    finally:
        publisher.close()
    assert time.monotonic() - begin < 30
    assert "long micro-batch" not in capsys.readouterr().out


def test_run_takes_a_latency_that_replaces_the_pipelines_latencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[Settings] = []

    def run_file(file: Path, names: object, given: Settings, master: object) -> tuple[()]:
        taken.append(given)
        return ()

    monkeypatch.setattr("ottla.cli.late.run_file", run_file)
    file = str(tmp_path / "program.py")
    assert main(["stream", "run", file, "--latency", "soon"]) == 1
    assert "--latency is 'soon'; it must be a duration such as" in capsys.readouterr().err
    assert main(["stream", "run", file, "--latency", "5 seconds"]) == 0
    assert main(["stream", "run", file]) == 0
    assert [each.latency_ms for each in taken] == [5000, None]
