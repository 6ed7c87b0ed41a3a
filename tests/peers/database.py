"""The process and the files of a database server of a test, on a free loopback port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .cache import in_ci

UNPRIVILEGED_ID = 65534
STOP_S = 20.0


def require(missing: str | None) -> None:
    """Skip the test if a peer is absent; in CI it fails. `missing` says why, or is None."""
    if missing is not None:
        if in_ci():
            pytest.fail(missing)
        pytest.skip(missing)


class DatabaseProcess:
    """A server as a process. As root it runs as another user, since databases refuse root."""

    host = "127.0.0.1"

    def __init__(self, kind: str, user: str) -> None:
        """Make the folder; user: the user of the system if this process is root."""
        self._kind = kind
        self.home = Path(tempfile.mkdtemp(prefix=f"ottla-{kind.lower()}-"))
        self.data = self.home / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            try:
                entry = pwd.getpwnam(user)
                uid, gid = entry.pw_uid, entry.pw_gid
            except KeyError:
                uid = gid = UNPRIVILEGED_ID
            os.chown(self.home, uid, gid)
            self._as = {"user": uid, "group": gid, "extra_groups": []}
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port: int = probe.getsockname()[1]

    def prepare(self, command: Sequence[str], timeout_s: float) -> None:
        """Run the program that makes the data folder, and once more if it fails. Raises RuntimeError with its output.

        It fails where memory or time is short, as when several workers of pytest start servers at once.
        """
        for attempt in (1, 2):
            shutil.rmtree(self.data, ignore_errors=True)
            try:
                done = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=timeout_s, cwd=self.home, **self._as
                )
            except subprocess.TimeoutExpired:
                reason = f"no end within {timeout_s:g} s"
            else:
                if done.returncode == 0:
                    return
                reason = f"exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            print(f"{self._kind} could not make its data folder, attempt {attempt}: {reason}", file=sys.stderr)
        raise RuntimeError(f"{self._kind} could not make its data folder: {reason}")

    def start(self, command: Sequence[str], accepts: Callable[[], bool], timeout_s: float) -> None:
        """Start the server, and wait until it accepts connections. Raises RuntimeError."""
        with open(self.home / "log", "ab") as log:
            process = self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.home, start_new_session=True, **self._as
            )
        deadline = time.monotonic() + timeout_s
        while not accepts():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._kind} did not start:\n{(self.home / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    @property
    def is_running(self) -> bool:
        """Whether the server was started, and not stopped or killed."""
        return self._process is not None

    def stop(self, number: signal.Signals) -> None:
        """Stop the server by a signal, or by kill -9 if it does not end."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """Kill -9 of the server and the processes of its group."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)
            self._process = None

    def remove(self) -> None:
        """Kill the server if it runs, and delete its files."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
