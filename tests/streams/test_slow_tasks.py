"""A pipeline in which one task has most of the work, from Spark's tasks to the words of `ottla stream why`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StatefulProcessor

from ottla.streams import pipeline, slow_tasks, stream, to
from ottla.streams.declarations import Pipeline
from ottla.streams.diagnosis import diagnose
from ottla.streams.facts import Facts
from ottla.streams.observing import read_statuses
from ottla.streams.publishing import Publisher
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings
from ottla.streams.status import SlowTask, Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

RECORDS = 300


class Slow(StatefulProcessor):
    """A processor that takes 15 ms for each row."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's
        for batch in rows:
            time.sleep(0.015 * len(batch))
        yield from ()

    def close(self) -> None:
        pass


@pipeline(max_records=RECORDS)
def words(rows: Any = stream("lines", "text")) -> Any:
    found = rows.select(F.explode(F.split("value", " ")).alias("word"))
    return to("out", found.groupBy("word").transformWithStateInPandas(Slow(), "word STRING", "append", "none"))


def delayed(word: str) -> str:
    """Take 30 ms for the word `hot`."""
    time.sleep(0.03 if word == "hot" else 0)
    return word


@pipeline(max_records=RECORDS)
def read_slowly(rows: Any = stream("lines", "text")) -> Any:
    return to("out", rows.select(F.udf(delayed, "string", useArrow=False)("value").alias("word")))


@contextmanager
def running(spark: SparkSession, ottla: Ottla, tmp_path: Path, declared: Pipeline) -> Iterator[Runner]:
    """Run a pipeline in a thread."""
    settings = Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path))
    publisher = Publisher(settings.client)
    runner, stop = Runner(spark, [declared], settings, publisher), threading.Event()
    runner.start()
    thread = threading.Thread(target=runner.watch, args=(stop,))
    thread.start()
    try:
        yield runner
    finally:
        stop.set()
        thread.join(30)
        runner.stop()
        publisher.close()


@pipeline(max_records=RECORDS)
def updated(rows: Any = stream("lines", "text")) -> Any:
    found = rows.select(F.explode(F.split("value", " ")).alias("word"))
    counted = found.groupBy("word").transformWithStateInPandas(Slow(), "word STRING", "update", "none")
    return to("out", counted, key="word", mode="updates")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_tasks, "SLOW_MS", 1_500)
    monkeypatch.setattr(slow_tasks, "INTERVAL_MS", 500)


def wait_for_slow(ottla: Ottla, is_found: Callable[[SlowTask], bool]) -> Status:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        for status in read_statuses({"bootstrap.servers": ottla.bootstrap}):
            if status.slow is not None and is_found(status.slow):
                return status
        time.sleep(0.3)
    raise AssertionError("no slow task was published")


@pytest.mark.parametrize("declared", [words, updated], ids=["append", "updates"])
def test_why_names_the_exploded_word_for_which_a_task_is_slow(
    ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path, declared: Pipeline
) -> None:
    ottla.topic("lines", 2)
    ottla.topic("out")
    for partition in (0, 1):
        lines = [f"hot w{number % 9}" if number % 4 else "hot hot" for number in range(1_500)]
        ottla.produce("lines", *lines, partition=partition)
    with running(ottla_spark, ottla, tmp_path, declared):
        status = wait_for_slow(ottla, lambda slow: bool(slow.keys))
        assert status.slow is not None
        (key,) = status.slow.keys
        assert (key.operator, key.columns, key.values) == ("processor", ["word"], ['"hot"'])
    found = [each.text for each in diagnose(status, Facts(status.at_ms)) if each.cause == "skewed key"]
    assert 'of these have word = "hot". The operator' in found[0]


def test_slow_task_that_reads_an_input_has_no_key(ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    ottla.topic("lines", 2)
    ottla.topic("out")
    ottla.produce("lines", *["hot"] * 1_500, partition=0)
    ottla.produce("lines", *["cold"] * 1_500, partition=1)
    with running(ottla_spark, ottla, tmp_path, read_slowly):
        slow = wait_for_slow(ottla, lambda _: True).slow
        assert slow is not None
        assert (slow.reads_inputs, slow.tasks, slow.keys, slow.unknown) == (True, 2, (), "")
        assert slow.running_ms >= 2 * slow.median_ms
