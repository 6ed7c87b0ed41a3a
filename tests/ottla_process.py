"""Ottla as a real process: started as a person starts it, waited for by its first line, killed without mercy.

A broker outlives `kill()` in its directory: `start()` again on the same object takes the same data and the same port.
Every wait has a deadline; the process's standard error is kept in `log_path`.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.testing.ports import ReservedPort
from tests import forked

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
ANNOUNCEMENT = "bootstrap="


class BrokerDied(Exception):
    """The process ended, or said nothing within its deadline; the message holds the end of its log."""


class OttlaProcess:
    """One broker in `directory` (data, standard output and log), on a loopback port that stays reserved for it."""

    is_forked = False
    """Whether it is forked from a process that has imported the broker: see tests/forked.py."""

    def __init__(self, directory: Path, properties: Mapping[str, object] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.log_path = directory / "stderr.log"
        self.bootstrap = ""
        self._stdout_path = directory / "stdout.log"
        self._properties = dict(properties or {})
        self._reserved: ReservedPort | None = None
        self._process: forked.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was never started"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it serves; a second start takes the port of the first."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process, and return at once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        start = forked.start if self.is_forked else forked.start_really
        with self._stdout_path.open("wb") as out, self.log_path.open("ab") as log:
            self._process = start(command, out, log, self.directory)

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it serves. Raises BrokerDied, and then the process has ended."""
        self.bootstrap = self._wait_for_announcement(timeout_s)

    def command(self) -> list[str]:
        """The command line that starts it."""
        # Another process must not get the port between a kill and the next start.
        self._reserved = self._reserved or ReservedPort()
        listen = self.bootstrap or f"127.0.0.1:{self._reserved.number}"
        command = [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(self.data), "--listen", listen]
        for name, value in self._properties.items():
            command += ["-X", f"{name}={value}"]
        return command

    def _wait_for_announcement(self, timeout_s: float) -> str:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            first, newline, _ = self._stdout_path.read_text().partition("\n")
            if newline:
                if not first.startswith(ANNOUNCEMENT):
                    self.kill()
                    raise BrokerDied(f"the first line of standard output is {first!r}, not {ANNOUNCEMENT}HOST:PORT")
                return first.removeprefix(ANNOUNCEMENT)
            if self._process.poll() is not None:
                raise BrokerDied(f"exit code {self._process.returncode} before it served:\n{self.log_tail()}")
            time.sleep(0.01)
        self.kill()
        raise BrokerDied(f"silent for {timeout_s} s:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and the exit code; raises BrokerDied (after a SIGKILL) if that takes longer than the deadline."""
        return self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(by)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            raise BrokerDied(f"still there {STOP_TIMEOUT_S} s after {by.name}:\n{self.log_tail()}") from None

    def wait(self) -> int:
        """The exit code of a broker that stops by itself; raises subprocess.TimeoutExpired."""
        assert self._process is not None
        return self._process.wait(STOP_TIMEOUT_S)

    def log_size(self) -> int:
        """Bytes of standard error so far."""
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_tail(self, since: int = 0, limit: int = 12_000) -> str:
        """Standard error from byte `since`, at most the last `limit` characters."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")[-limit:]

    def assert_no_traceback(self) -> None:
        """A traceback in a broker's log is a bug, whatever a client did to it."""
        log = self.log_tail(limit=10_000_000)
        position = log.find("Traceback")
        assert position < 0, (
            f"the broker's log {self.log_path} has a traceback:\n{log[max(0, position - 500) : position + 4000]}"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with contextlib.suppress(BrokerDied):  # the error under way says more
                self.stop()
        else:
            self.stop()


class ForkedOttla(OttlaProcess):
    """A broker that starts with little CPU time, for tests that prove something else than its start or its limits."""

    is_forked = True
