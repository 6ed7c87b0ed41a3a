"""`ottla stream run` as a process of its own, ended by SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.cluster import QUICK_JAVA
from tests.spark.processes import kill_session

if TYPE_CHECKING:
    from ottla.testing import Ottla

PROGRAM = """
from dataclasses import dataclass
from pyspark.sql import functions as F
from ottla.streams import pipeline, stream, to

@F.udf("STRING")
def shout(text):
    return text.upper() + suffix()

def suffix():  # in this file only, which the workers do not import
    return "!"

@pipeline(exactly_once=True)
def loud(lines=stream("quiet", value="text")):
    return to("loud", lines.select(shout("value").alias("value")), value="text")
"""
WAIT_S = 200


def test_sigterm_ends_a_run_after_its_batch(ottla: Ottla, tmp_path: Path) -> None:
    ottla.topic("quiet", 2)
    ottla.topic("loud")
    (tmp_path / "loud_program.py").write_text(PROGRAM)
    command = ["stream", "run", tmp_path / "loud_program.py", "-b", ottla.bootstrap]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *command, "--checkpoints", tmp_path / "state"],
            env={**os.environ, **QUICK_JAVA, "MASTER": "local[1]", "PYSPARK_PYTHON": sys.executable},
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
    assert (tmp_path / "state" / "loud" / "ottla-program.json").exists()
