"""A node of the schema registry as a process of its own (forked: see tests/forked.py), killed or paused without mercy.

Every wait has a deadline; the process's standard error is kept in `log_path`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.testing.ports import ReservedPort
from tests import forked

START_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 30.0
ANNOUNCEMENT = "registry="


class RegistryProcess:
    """One node in `directory`, on a loopback port that stays reserved for it. `settings` have Confluent's names."""

    def __init__(self, directory: Path, bootstrap: str, words: list[str] | None = None, **settings: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_path = directory / "stderr.log"
        self._stdout_path = directory / "stdout.log"
        self._reserved = ReservedPort()
        self._bootstrap = bootstrap
        self._words = words or []
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._process: forked.Process | None = None
        self.url = f"http://127.0.0.1:{self._reserved.number}"

    def command(self) -> list[str]:
        """The command line that starts it."""
        command = [sys.executable, "-m", "ottla.cli.main", "registry", "serve", "-b", self._bootstrap]
        command += ["--listen", self.url, *self._words]
        for name, value in self._settings.items():
            command += ["-X", f"{name}={value}"]
        return command

    def launch(self) -> None:
        """Start the process, and return at once."""
        with self._stdout_path.open("wb") as out, self.log_path.open("ab") as log:
            self._process = forked.start(self.command(), out, log, Path.cwd())

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._stdout_path.read_text().startswith(ANNOUNCEMENT):
            assert self._process is not None
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"not ready in time:\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def wait(self) -> int:
        """The exit code of a node that ends by itself."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not stop:\n{self.log()}") from None

    def log(self) -> str:
        """The end of its standard error."""
        return self.log_path.read_text()[-8000:] if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if kind is not None:
            with contextlib.suppress(AssertionError):
                self.stop()
            os.write(2, f"--- {self.log_path}\n{self.log()}\n".encode())
        else:
            self.stop()
