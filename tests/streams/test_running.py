"""Runs on Spark: `once`, restarts from a checkpoint, resets, failures, and what is published about them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.cli.main import main
from ottla.clients import Admin, Consumer
from ottla.common.ids import TopicPartition
from ottla.streams import Output, PipelineFailed, StreamsError, pipeline, run, stream, to
from ottla.streams.observing import read_statuses
from ottla.streams.publishing import Publisher
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings
from ottla.streams.status import Status
from ottla.tools.admin.group_lag import read_lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

WAIT_S = 120


@pipeline(exactly_once=True)
def copied(lines: Any = stream("lines", value="text")) -> list[Output]:
    return [to("copies", lines, value="text"), to("long", lines.where("length(value) > 1"), value="text")]


def test_once_continues_from_its_checkpoint_and_begins_again_after_a_reset(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del ottla_spark  # `run` uses the session that there is
    ottla.topic("lines", 2)
    ottla.produce("lines", "a", "b", "cd")
    arguments: dict[str, Any] = {"bootstrap": ottla.bootstrap, "checkpoints": str(tmp_path), "once": True}
    (status,) = run(copied, **arguments)
    assert (status.phase, status.records, status.lag, status.outputs) == ("done", 3, 0, {"copies": 3, "long": 1})
    ottla.produce("lines", "e")
    (status,) = run(copied, **arguments)
    assert (status.records, status.outputs) == (1, {"copies": 1, "long": 0})
    assert sorted(record.value or b"" for record in ottla.records("copies")) == [b"a", b"b", b"cd", b"e"]
    (status,) = run(copied, **arguments)
    assert (status.phase, status.records, status.lag) == ("done", 0, 0)
    assert sum(each.offset for given in status.inputs for each in given.partitions) >= 4, "known without a micro-batch"
    assert main(["stream", "why", "copied", "-b", ottla.bootstrap]) == 0
    assert "after all records of its start (--once)" in capsys.readouterr().out
    assert main(["stream", "reset", "copied", "--to-latest", "--yes", "-b", ottla.bootstrap]) == 0
    ottla.produce("lines", "f")
    (status,) = run(copied, **arguments)
    assert (status.records, status.outputs) == (1, {"copies": 1, "long": 0})
    assert [record.value for record in ottla.records("copies")][-1] == b"f"


def test_stop_in_a_micro_batch_leaves_no_lag_in_the_group(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    ottla.topic("lines", 2)
    ottla.produce("lines", "a", "b", "c")
    runner = Runner(ottla_spark, [copied], Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path)))
    runner.start()
    try:
        ottla.wait_until(lambda: len(ottla.records("copies")) == 3, WAIT_S)  # the micro-batch still runs
    finally:
        runner.stop()
    (status,) = runner.statuses()
    assert (status.phase, status.records, status.lag) == ("stopped", 3, 0)
    with Admin(ottla.bootstrap) as admin:
        assert read_lag(admin, "copied").summary()["lag"] == 0


@pipeline(exactly_once=True)
def sums(sales: Any = stream("sales", "json", schema="user STRING, price INT")) -> list[Output]:
    totals = sales.groupBy("user").agg(F.sum("price").alias("spent"))
    return [to("totals", totals, key="user", mode="updates"), to("large", sales.where("price >= 100"), key="user")]


def test_reprocessing_gives_the_same_table_and_appends_results_again(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    del ottla_spark
    ottla.topic("sales", 2)
    arguments: dict[str, Any] = {"bootstrap": ottla.bootstrap, "checkpoints": str(tmp_path), "once": True}
    for user, price in (("a", 100), ("b", 5), ("a", 20)):
        ottla.produce("sales", json.dumps({"user": user, "price": price}), key=user)
    run(sums, **arguments)
    expected = {b"a": {"user": "a", "spent": 120}, b"b": {"user": "b", "spent": 5}}
    large = [record.value for record in ottla.records("large")]
    for name, times in ((sums, 2), (pipeline(name="sums.v2", exactly_once=True)(sums.function), 3)):
        if name is sums:
            assert main(["stream", "reset", "sums", "--to-earliest", "--yes", "-b", ottla.bootstrap]) == 0
        statuses = run(name, **arguments)
        assert [status.records for status in statuses] == [3, 3]
        table = {record.key: json.loads(record.value or b"") for record in ottla.records("totals")}
        assert table == expected
        assert [record.value for record in ottla.records("large")] == large * times


@pipeline(name="copied")
def changed(rows: Any = stream("lines", value="text")) -> Output:
    return to("copies", rows.groupBy("value").count(), mode="updates")


def test_changed_program_is_refused_with_the_difference(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    ottla.topic("lines")
    settings = Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path))
    for program in (copied, changed):
        runner = Runner(ottla_spark, [program], settings)
        if program is copied:
            runner.start()
            runner.stop()
            continue
        with pytest.raises(StreamsError) as raised:
            runner.start()
        runner.stop()
    assert "its input 'lines' was the topic 'lines', and is None" in str(raised.value)
    assert "query 'copied' had no state, and has aggregate by value" in str(raised.value)


@pipeline
def numbers(rows: Any = stream("numbers", "json", schema="x INT")) -> Output:
    return to("same", rows)


def test_why_names_the_record_that_stopped_a_run(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del ottla_spark
    ottla.topic("numbers")
    ottla.produce("numbers", '{"x": 1}', '{"x": "one"}')
    with pytest.raises(PipelineFailed, match="offset 1: the value's field x"):
        run(numbers, bootstrap=ottla.bootstrap, checkpoints=str(tmp_path), once=True)
    assert main(["stream", "why", "numbers", "-b", ottla.bootstrap]) == 0
    said = capsys.readouterr().out
    assert "Stopped by a record." in said
    assert "`ottla consume numbers -p 0 -o 1 -n 1` shows the record." in said


def committed(ottla: Ottla, topic: str) -> list[bytes | None]:
    """The values of a topic with one partition that a reader with read_committed sees now."""
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap_servers=ottla.bootstrap, **settings) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[bytes | None] = []
        deadline = time.monotonic() + WAIT_S
        while consumer.position(place) < end and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(0.1)]
        return found


def test_killed_worker_and_unavailable_broker_restart_a_query(
    ottla: Ottla, ottla_spark: SparkSession, tmp_path: Path
) -> None:
    flag = tmp_path / "killed"

    @F.udf("STRING")
    def fragile(text):  # Spark reads the types of annotations, and those here are text
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return text.upper()

    @pipeline(exactly_once=True)
    def loud(lines: Any = stream("lines", value="text")) -> Output:
        return to("loud", lines.select(fragile("value").alias("value")), value="text")

    ottla.topic("lines")
    ottla.topic("loud")
    ottla.produce("lines", "a")
    client = {"bootstrap.servers": ottla.bootstrap, "default.api.timeout.ms": "3000", "request.timeout.ms": "2000"}
    publisher = Publisher({"bootstrap.servers": ottla.bootstrap})
    runner = Runner(ottla_spark, [loud], Settings(client, str(tmp_path)), publisher)
    stop = threading.Event()
    watching = threading.Thread(target=runner.watch, args=(stop,))
    runner.start()
    watching.start()

    def status() -> Status:
        return runner.statuses()[0]

    try:
        ottla.wait_until(lambda: committed(ottla, "loud") == [b"A"], WAIT_S)
        problem = status().problem
        assert problem is not None
        assert problem.kind == "retriable"
        assert "Python worker exited unexpectedly" in problem.reason
        ottla.stop()
        ottla.wait_until(lambda: status().phase == "restarting", WAIT_S)
        ottla.start()
        ottla.produce("lines", "b")
        ottla.wait_until(lambda: len(committed(ottla, "loud")) >= 2, WAIT_S)
    finally:
        stop.set()
        watching.join(WAIT_S)
        runner.stop()
        publisher.close()
    assert committed(ottla, "loud") == [b"A", b"B"]
    (published,) = read_statuses({"bootstrap.servers": ottla.bootstrap})
    assert (published.phase, published.problem is not None) == ("stopped", True)
