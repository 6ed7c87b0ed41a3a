"""A Spark standalone cluster on this machine: a master and workers, each in its own Java process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

from ottla.spark import class_archive
from ottla.spark.session import QUICK_JAVA, use_java

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_START_S = 60.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_DAEMON_ARGUMENTS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


def quick_java() -> dict[str, str]:
    """The environment in which Java starts quickly; executors inherit it. Call `use_java` first.

    With the archive of Spark's classes (`make peers` creates it), a master and two workers take half of the CPU time.
    """
    return {"JDK_JAVA_OPTIONS": f"{QUICK_JAVA} {class_archive.java_options()}".strip()}


class StandaloneCluster:
    """A context manager; `master` is its URL."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.master = ""
        self._directory = directory
        self._workers = workers
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            log = self._start("master", _MASTER, *_DAEMON_ARGUMENTS)
            self.master = self._found(log, r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                work = self._directory / f"worker-{number}"
                limits = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
                log = self._start(f"worker-{number}", _WORKER, *_DAEMON_ARGUMENTS, *limits, self.master)
                self._found(log, r"(Successfully registered with master)")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)

    def _start(self, name: str, java_class: str, *arguments: str) -> Path:
        use_java()
        log = self._directory / f"{name}.log"
        environment = {
            **os.environ,
            **quick_java(),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(_SPARK_CLASS.parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with log.open("wb") as out:
            command = [str(_SPARK_CLASS), java_class, *arguments]
            self._running.append(subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT))
        return log

    def _found(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            if self._running[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"no {pattern!r} in {log.name}:\n{log.read_text(errors='replace')[-2000:]}")
