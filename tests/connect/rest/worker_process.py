"""Connect workers as processes of their own: `ottla connect run` and `serve`, waited for by their first line."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import forked
from tests.connect.rest.script import Answer, request

START_S = 60.0
STOP_S = 30.0
ANNOUNCEMENT = "connect="
ROOT = Path(__file__).resolve().parents[3]
"""Workers import the connectors of tests from here."""


class WorkerProcess:
    """A worker with the words of its command line. `directory` has its log, `python_path` further packages."""

    def __init__(self, directory: Path, *words: str, python_path: Sequence[Path] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.words = words
        self._python_path = [str(ROOT), *map(str, python_path)]
        self.host, self.port = "", 0
        self._process: forked.Process | None = None

    def start(self) -> None:
        """Start, and wait until it serves. Raises AssertionError with the log."""
        out, log = self.directory / "stdout.log", self.directory / "stderr.log"
        command = [sys.executable, "-m", "ottla.cli.main", "connect", *self.words]
        with out.open("wb") as stdout, log.open("ab") as stderr:
            self._process = forked.start(command, stdout, stderr, self.directory, self._python_path)
        deadline = time.monotonic() + START_S
        while not out.read_text().startswith(ANNOUNCEMENT) or "\n" not in out.read_text():
            assert self._process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)
        url = out.read_text().splitlines()[0].removeprefix(ANNOUNCEMENT).split(",")[0]
        self.host, _, port = url.partition("://")[2].rpartition(":")
        self.port = int(port)

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def request(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request to its REST API."""
        return request(self.host, self.port, method, path, body)

    def log(self) -> str:
        """The log so far."""
        return (self.directory / "stderr.log").read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
            raise AssertionError(f"the worker did not stop:\n{self.log()[-4000:]}") from None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_S)
