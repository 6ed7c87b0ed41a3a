"""The process of the pipelines, and the end of all processes that an example started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

END_WAIT_S = 5.0
PIPELINES = Path(__file__).with_name("flights_spark.py")
# A busy machine may take longer than the default of 15 s to start a worker in Python.
SPARK = "--conf spark.ui.enabled=false --conf spark.python.authenticate.socketTimeout=60s pyspark-shell"
# Java's second compiler costs more than it gains in a minute: with it, Java needs half as much processor time again
# until the first results. With the first one alone, Java reserves 48 MB for code, which Spark fills in this minute.
JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def start_pipelines(bootstrap: str, directory: Path, master: str | None) -> subprocess.Popen[bytes]:
    """Start `ottla stream run flights_spark.py`. It prints to `directory`/pipelines.out, and logs to spark.log."""
    temporary = directory / "spark"
    temporary.mkdir()
    command = [sys.executable, "-m", "ottla.cli.main", "stream", "run", str(PIPELINES), "-b", bootstrap]
    command += ["--checkpoints", str(directory / "checkpoints"), *(["--master", master] if master else [])]
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": SPARK,
        "JDK_JAVA_OPTIONS": f"{JAVA} -Djava.io.tmpdir={temporary}",
        "SPARK_LOCAL_DIRS": str(temporary),
    }
    with (directory / "pipelines.out").open("wb") as out, (directory / "spark.log").open("wb") as log:
        # Ctrl-C is for the example, which ends its processes itself.
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log, process_group=0
        )


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the process ended meanwhile
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def end_descendants() -> None:
    """End all processes that this one started, within seconds."""
    pids = descendants(os.getpid())
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for pid in filter(runs, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, sent)
        deadline = time.monotonic() + END_WAIT_S
        while any(map(runs, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended; one that ended may wait for its parent to take notice."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
