"""Waits for queries that make no progress."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StringType

from ottla.streams import Output, StreamsError, outputs, pipeline, running_query, runtime, stream, to
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

from .conftest import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

QUICK_S = 30.0


@F.udf(StringType())
def slowly(value):
    time.sleep(QUICK_S)
    return value


@pipeline
def slow(rows: Any = stream("rows", value="text")) -> Output:
    return to("slow", rows.select(slowly("value").alias("value")), value="text")


@pipeline
def counted(rows: Any = stream("rows", value="text")) -> Output:
    return to("counted", rows.groupBy("value").count(), key="value", mode="updates")


def test_reading_has_a_deadline_and_the_pipeline_can_be_stopped(
    ottla_streams: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_query, "AVAILABLE_S", 1.0)
    monkeypatch.setattr(runtime, "BATCH_END_S", 0.0)
    test = ottla_streams(slow)
    test.send("rows", "a")
    with pytest.raises(StreamsError, match=r"Query slow has not processed its records in 1 s: "):
        test.read("slow")
    began_s = time.monotonic()
    test.close()
    assert time.monotonic() - began_s < QUICK_S


def test_stop_has_a_deadline_although_java_cannot_interrupt_the_query(
    ottla_spark: SparkSession,
    ottla: Ottla,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The function of foreachBatch runs in Python, and Java waits for it."""
    is_in_batch, go_on = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        is_in_batch.set()
        go_on.wait(2 * QUICK_S)

    monkeypatch.setattr(outputs, "_batch_writer", lambda *_: wait)
    monkeypatch.setattr(runtime, "BATCH_END_S", 0.0)
    monkeypatch.setattr(runtime, "STOP_TIMEOUT", "1s")
    ottla.topic("rows")
    ottla.topic("counted")
    ottla.produce("rows", "a")
    runner = Runner(ottla_spark, [counted], Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path)))
    try:
        runner.start()
        assert is_in_batch.wait(2 * QUICK_S)
    finally:
        began_s = time.monotonic()
        runner.stop()
        took_s = time.monotonic() - began_s
        go_on.set()
    assert took_s < QUICK_S
    assert "Stopped query counted in a micro-batch" in caplog.text
