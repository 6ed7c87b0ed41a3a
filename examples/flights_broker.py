"""A broker for an example: `own_broker` starts `ottla up` in a directory and stops it when the example ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Failure(Exception):
    """The run cannot go on; the message says why."""


@contextmanager
def own_broker(directory: Path) -> Iterator[str]:
    """An Ottla broker on a free port, with its data below `directory`; yields its address and stops it at the end."""
    said, log = directory / "broker.out", directory / "broker.log"
    command = [sys.executable, "-m", "ottla.cli.main", "up"]
    command += ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
    with said.open("wb") as out, log.open("wb") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield announced(process, said, log)
    finally:
        code = stop(process)
    if code != 0:
        raise Failure(f"the broker ended with exit code {code}:\n{log.read_text()[-3000:]}")


def announced(process: subprocess.Popen[bytes], said: Path, log: Path) -> str:
    """The address in the broker's first line, once it serves."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        line, newline, _ = said.read_text().partition("\n")
        if newline and line.startswith("bootstrap="):
            return line.removeprefix("bootstrap=")
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise Failure(f"the broker did not start:\n{log.read_text()[-3000:]}")


def stop(process: subprocess.Popen[bytes]) -> int:
    """End the broker as Ctrl-C would; its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait(15)
