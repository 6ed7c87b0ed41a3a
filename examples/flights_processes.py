"""Spark without its messages on the terminal, and the end of all processes that an example started."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_WAIT_S = 5.0


def start_spark(directory: Path, master: str | None) -> SparkSession:
    """A session whose messages, and those of Java and of the workers, go to `directory`/spark.log.

    Blocks for seconds. Ctrl-C keeps the handler that it had. That of pyspark would cancel all jobs, and each query
    would report its failure with a stack trace.
    """
    import ottla.spark

    conf: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        # A busy machine may take longer than the default of 15 s to start a worker in Python.
        "spark.python.authenticate.socketTimeout": "60s",
    }
    if master is None or master.startswith("local"):
        temporary = directory / "spark"
        temporary.mkdir()
        # Java's second compiler costs more than it gains in a minute: with it, Java needs half as much processor time
        # again until the first results.
        java = f"-Djava.io.tmpdir={temporary} -XX:TieredStopAtLevel=1"
        conf |= {"spark.local.dir": temporary, "spark.driver.extraJavaOptions": java}
    handler = signal.getsignal(signal.SIGINT)
    with stderr_in(directory / "spark.log"):
        session = ottla.spark.session("flights", master, **conf)
        signal.signal(signal.SIGINT, handler)
        session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """Processes that are started meanwhile have the file as their standard error."""
    own = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the process ended meanwhile
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
    return found


def disconnect_java() -> None:
    """Stop sending commands to Java, if it was started; may be called again.

    Python tells Java of each Java object that it releases. While Java is being ended, that would print an exception.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = pyspark.SparkContext._gateway if pyspark is not None else None  # noqa: SLF001 - there is no public name
    if gateway is not None:
        gateway.shutdown()


def end_descendants() -> None:
    """End all processes that this one started, within seconds."""
    disconnect_java()
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
