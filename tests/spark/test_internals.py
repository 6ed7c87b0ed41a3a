"""Each function of the adapter to private API of Spark, in a real session: what another version of pyspark may break.

`make spark-versions` runs these tests with each supported version.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.datasource import DataSource

from ottla.spark.internals import files, java, names, plans, sessions, stages
from ottla.spark.internals.errors import JAVA_ERRORS, JAVA_EXCEPTION, SPARK_ERRORS
from ottla.spark.internals.exceptions import cause_of, first_line, java_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 30.0


# --- names and exceptions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*names.WORKER_MODULES, names.SOURCE_RUNNER, *names.VALUE_MODULES])
def test_module_exists(name: str) -> None:
    assert find_spec(name) is not None


def test_classes_exist(spark: SparkSession) -> None:
    del spark
    java.load_classes([*names.SESSION_CLASSES, *names.CASE_CLASSES, names.CHECKPOINT_FILES, names.STATE_STORE])
    java.load_classes([names.TRIGGERS])
    with pytest.raises(JAVA_ERRORS, match="NoSuchClass"):
        java.load_classes(["org.apache.spark.NoSuchClass"])


def test_java_exception_has_its_own_text_and_one_line(spark: SparkSession) -> None:
    with pytest.raises(SPARK_ERRORS) as raised:
        spark._jvm.java.util.ArrayDeque().removeFirst()  # type: ignore[union-attr]
    assert isinstance(raised.value, JAVA_EXCEPTION)
    assert str(java_text(raised.value)).startswith("java.util.NoSuchElementException\n\tat ")
    assert first_line(raised.value) == "java.util.NoSuchElementException"
    assert cause_of(raised.value) is None
    assert java_text(ValueError("x")) is None
    assert first_line(ValueError("x")) == "x"


def test_exception_that_pyspark_has_converted_has_its_cause(spark: SparkSession) -> None:
    def fail(_: Any) -> int:
        raise ValueError("of the program")

    failing = spark.range(2).select(F.udf(fail, "long", useArrow=False)("id"))
    with pytest.raises(SPARK_ERRORS, match="of the program") as raised:
        failing.write.format("noop").mode("append").save()
    assert isinstance(raised.value, PySparkException)
    assert java_text(raised.value) is None
    assert cause_of(raised.value) is None or "of the program" in str(cause_of(raised.value))


# --- Java -------------------------------------------------------------------------------------------------------------


def test_running_java_is_known(spark: SparkSession) -> None:
    assert (java.has_context(), java.is_connected(), java.is_running()) == (True, True, True)
    assert java.process_of(spark).poll() is None
    assert Path(java.spark_home(), "jars").is_dir()


def test_settings_of_a_builder_are_known(spark: SparkSession) -> None:
    builder = type(spark).builder.appName("named").master("local[1]")
    known = java.builder_options(builder)
    assert (known["spark.app.name"], known["spark.master"]) == ("named", "local[1]")


@pytest.mark.long
def test_java_starts_and_ends() -> None:
    program = """
from pyspark import SparkConf
from pyspark.sql import SparkSession
from ottla.spark.internals import java
from ottla.spark.session import QUICK_JAVA
print("|", java.is_connected(), java.has_context())
conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", QUICK_JAVA)
java.launch(conf, {"process_group": 0})
print("|", java.is_connected(), java.is_running(), java.has_context())
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
process = java.process_of(spark)
spark.stop()
process.stdin.close()
process.wait(60)
print("|", process.poll(), java.is_running())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    said = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert said == ["| False False", "| True True False", "| 0 False"]


@pytest.mark.parametrize("is_early", [False, True])
def test_interrupted_launch_kills_java(is_early: bool) -> None:
    program = """
import os, pyspark.java_gateway, signal, subprocess, sys, types
from pyspark import SparkConf
from ottla.spark.internals import java
begun = []
class Recorded(subprocess.Popen):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        begun.append(self)
        if sys.argv[1] == "True":  # a moment before the caller gets the process
            os.kill(os.getpid(), signal.SIGINT)
def interrupt(_):
    raise KeyboardInterrupt
pyspark.java_gateway.Popen = Recorded
pyspark.java_gateway.time = types.SimpleNamespace(sleep=interrupt)
try:
    java.launch(SparkConf(loadDefaults=False), {"process_group": 0})
except KeyboardInterrupt:
    is_restored = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print("|", begun[0].wait(30), pyspark.java_gateway.Popen is Recorded, is_restored)
"""
    command = [sys.executable, "-c", program, str(is_early)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert f"| -{int(signal.SIGKILL)} True True" in ran.stdout, ran.stderr


def test_signal_to_java_is_handled_until_the_end_of_the_block(spark: SparkSession) -> None:
    java.start_callbacks()
    java.start_callbacks()  # once is enough
    received: list[str] = []
    is_received = threading.Event()

    def handle(name: str) -> None:
        received.append(name)
        is_received.set()

    with java.handled_signals(["WINCH"], handle):  # a signal that Java ignores by default
        os.kill(java.process_of(spark).pid, signal.SIGWINCH)
        assert is_received.wait(WAIT_S)
    os.kill(java.process_of(spark).pid, signal.SIGWINCH)
    assert java.is_running()
    assert received == ["WINCH"]


def test_log_is_quiet_until_the_end_of_the_block(spark: SparkSession) -> None:
    del spark
    proxies = logging.getLogger("py4j.clientserver")
    level, before = java.set_log_level("ERROR"), proxies.level
    with java.quiet():
        assert java.set_log_level("OFF") == "OFF"
        assert proxies.level == logging.CRITICAL
    assert proxies.level == before
    assert java.set_log_level(str(level)) == "ERROR"


@pytest.mark.parametrize("name", [None, names.TRIGGERS])
def test_log_level_is_set_and_the_previous_one_returned(spark: SparkSession, name: str | None) -> None:
    del spark
    before = java.set_log_level("OFF", name)
    assert before is not None
    assert java.set_log_level(before, name) == "OFF"
    assert java.set_log_level(before, name) == before


# --- sessions and files -----------------------------------------------------------------------------------------------


def test_session_becomes_active_in_a_thread(spark: SparkSession) -> None:
    found: list[bool] = []

    def run() -> None:
        classic = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        classic.clearActiveSession()
        sessions.ensure_active(spark)
        found.append(classic.getActiveSession().get().equals(spark._jsparkSession))
        classic.clearActiveSession()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_S)
    assert found == [True]


def test_formats_are_known(spark: SparkSession) -> None:
    assert sessions.knows_format(spark, "ottla")
    assert not sessions.knows_format(spark, "no_such_format")


def test_source_is_registered_while_a_session_is_active_that_knows_it(spark: SparkSession) -> None:
    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers-of-a-session"

    classic = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    first, second = spark.newSession(), spark.newSession()
    sessions.register(first, Numbers)
    assert not sessions.knows_format(second, Numbers.name())
    classic.setActiveSession(first._jsparkSession)
    try:
        sessions.register(second, Numbers)
        assert classic.getActiveSession().get().equals(first._jsparkSession)
    finally:
        classic.setActiveSession(spark._jsparkSession)
    assert sessions.knows_format(second, Numbers.name())


def test_batches_are_reported_as_json_until_the_end(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    reports: list[dict[str, Any]] = []
    is_reported = threading.Event()

    def take(report: str) -> None:
        reports.append(json.loads(report))
        is_reported.set()

    end = sessions.report_batches(session, take)
    lines(session, tmp_path).writeStream.format("noop").queryName("reported").option(
        "checkpointLocation", str(tmp_path / "one")
    ).trigger(availableNow=True).start().awaitTermination(WAIT_S)
    assert is_reported.wait(WAIT_S)
    assert {report["name"] for report in reports} == {"reported"}
    assert sum(report["numInputRows"] for report in reports) == 4
    end()
    count = len(reports)
    lines(session, tmp_path).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "two")).trigger(
        availableNow=True
    ).start().awaitTermination(WAIT_S)
    assert len(reports) == count


def test_files_are_written_and_read_by_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    name = f"{tmp_path}/of/text.json"
    assert files.read_text(spark, name) is None
    files.create_text(spark, name, "gr\u00fcn")
    assert files.read_text(spark, name) == "gr\u00fcn"
    assert Path(name).read_text(encoding="utf-8") == "gr\u00fcn"
    with pytest.raises(files.FileError, match="cannot be written"):
        files.create_text(spark, name, "again")
    with pytest.raises(files.FileError, match="No FileSystem for scheme"):
        files.read_text(spark, "nowhere://x")


# --- plans ------------------------------------------------------------------------------------------------------------


def test_plan_of_an_aggregate_has_its_key_and_the_rows_below(spark: SparkSession) -> None:
    node = plans.plan_of(spark.range(6).groupBy((F.col("id") % 2).alias("odd")).count())
    while node.name != "Aggregate":
        (node,) = node.children
    assert not node.is_streaming
    assert [each.name for each in node.grouping] == ["odd"] or "(id % " in node.grouping[0].name
    ((keys, below),) = node.keys
    assert sorted(row[0] for row in below.select(keys).collect()) == [0, 0, 0, 1, 1, 1]


def test_plan_of_duplicates_and_its_text(spark: SparkSession) -> None:
    node = plans.plan_of(spark.range(3).withColumn("b", F.upper(F.lit("x"))).dropDuplicates(["id"]))
    assert (node.name, [each.name for each in node.grouping]) == ("Deduplicate", ["id"])
    assert "upper(x)" in node.text


def test_plan_of_a_join_has_its_type_and_a_key_for_each_side(spark: SparkSession) -> None:
    left, right = spark.range(3), spark.range(2).withColumnRenamed("id", "other")
    node = plans.plan_of(left.join(right, F.col("id") == F.col("other"), "left"))
    assert (node.name, node.join_type, node.source) == ("Join", "left outer", None)
    assert [[each.name for each in keys] for keys, _ in node.keys] == [["id"], ["other"]]
    assert [below.select(keys).count() for keys, below in node.keys] == [3, 2]
    cross = plans.plan_of(left.join(right, F.col("id") > F.col("other")))
    assert cross.keys == []


def test_plan_of_a_batch_of_topics_names_the_source(spark: SparkSession) -> None:
    rows = spark.read.format("ottla").option("kafka.bootstrap.servers", "x:1").option("subscribe", "a").load()
    assert plans.plan_of(rows).source == "ottla"


def test_plan_of_a_stream_and_of_functions_with_state(spark: SparkSession, tmp_path: Path) -> None:
    def take(key: Any, given: Any, state: Any) -> Iterator[Any]:
        del key, given, state
        yield from ()

    grouped = lines(spark, tmp_path).groupBy("value")
    for timeout in ("ProcessingTimeTimeout", "NoTimeout"):
        rows = grouped.applyInPandasWithState(take, "value STRING", "value STRING", "append", timeout)
        node = plans.plan_of(rows)
        assert node.is_streaming
        assert node.name.startswith("FlatMapGroups")
        assert node.has_clock is (timeout != "NoTimeout")
        assert [[each.name for each in keys] for keys, _ in node.keys] == [["value"]]
    assert not plans.plan_of(lines(spark, tmp_path)).has_clock


def test_plan_of_a_processor(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.streaming import StatefulProcessor

    class Nothing(StatefulProcessor):
        def init(self, handle: Any) -> None:
            pass

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's
            yield from ()

        def close(self) -> None:
            pass

    grouped = lines(spark, tmp_path).groupBy("value")
    for mode in ("processingTime", "none"):
        node = plans.plan_of(grouped.transformWithStateInPandas(Nothing(), "value STRING", "append", mode))
        assert node.name == "TransformWithStateInPySpark"
        assert node.has_clock is (mode != "none")
        assert [[each.name for each in keys] for keys, _ in node.keys] == [["value"]]


def test_check_streaming_checks_like_a_start(spark: SparkSession, tmp_path: Path) -> None:
    counted = lines(spark, tmp_path).groupBy("value").count()
    plans.check_streaming(counted, is_update=True)
    with pytest.raises(AnalysisException, match="watermark"):
        plans.check_streaming(counted, is_update=False)


# --- stages -----------------------------------------------------------------------------------------------------------


def test_longest_task_of_a_running_stage(spark: SparkSession, tmp_path: Path) -> None:
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()
    seen, wait_s = tmp_path / "seen", WAIT_S

    def work(part: int) -> None:
        deadline_s = time.monotonic() + wait_s
        while part and not seen.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)

    thread = threading.Thread(target=context.parallelize([0, 1], 2).map(work).collect)
    thread.start()
    found, deadline_s = None, time.monotonic() + WAIT_S
    while found is None and time.monotonic() < deadline_s:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numCompletedTasks:
                found = stages.longest_task(spark, stage, info.currentAttemptId)
        time.sleep(0.05)
    now_ms = time.time() * 1000
    seen.touch()
    thread.join(WAIT_S)
    assert found is not None
    assert found.partition == 1
    assert found.host
    assert 0 <= now_ms - found.launched_ms < 1000 * WAIT_S
    assert found.median_ms >= 0
    assert stages.longest_task(spark, 1 << 30, 0) is None


def test_shuffle_records_are_counted_by_stage(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("shuffled", "shuffled")
    spark.range(0, 100, 1, 2).repartition(2, "id").groupBy("id").count().collect()
    context.setLocalProperty("spark.jobGroup.id", "")
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("shuffled")]
    found = {stage for job in jobs if job is not None for stage in job.stageIds}
    assert max(stages.shuffle_records(spark, stage) for stage in found) == 100
    assert stages.shuffle_records(spark, 1 << 30) == 0


def lines(session: SparkSession, directory: Path) -> DataFrame:
    """A stream of four lines."""
    source = directory / "lines"
    source.mkdir(exist_ok=True)
    (source / "a.txt").write_text("a\nb\nc\nd\n")
    return session.readStream.text(str(source))


def test_exists_sees_files_and_directories(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert files.exists(spark, str(tmp_path / "a"))
    assert files.exists(spark, f"file:{tmp_path}")
    assert not files.exists(spark, str(tmp_path / "b"))


def test_activate_changes_the_active_session(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        sessions.activate(other)
        active: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().get()  # type: ignore[union-attr]
        assert active.conf().get("spark.sql.shuffle.partitions") == "7"
    finally:
        sessions.activate(spark)
