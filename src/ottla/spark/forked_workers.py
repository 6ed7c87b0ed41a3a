"""Starts Spark's Python processes on this machine as forks of one process that has imported what they need.

For a streaming query Spark starts more than ten Python processes, and each of them would import pyspark and pyarrow:
half a second of CPU. So `start` starts a server (`worker_server`), which imports them once while Java starts, and
writes a script that Spark starts as its `python` (`worker_launcher`).

A fork has the arguments, environment, working directory and standard streams of its launcher. If the launcher dies, it
gets SIGTERM. Without an answer of the server the launcher becomes the interpreter: only time depends on the server. It
ends with the process that started it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

SINGLE_THREADED: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""A process with several threads cannot be forked safely. Each fork runs one Spark task, which has one core."""
SOCKET: Final = "socket"
HASH_SEED: Final = "PYTHONHASHSEED"
_LONGEST_INTERPRETER: Final = 100
"""The kernel reads at least 127 bytes of the first line of a script."""
_END_S: Final = 10.0
_running: dict[int, tuple[Path, subprocess.Popen[bytes]]] = {}
"""Launcher and server, by the process that started them: a fork of it starts its own."""


def start() -> Path | None:
    """Return the script that Spark starts as its `python`, and start the server. None where it would not work."""
    python = sys.executable
    if sys.platform != "linux" or len(python) > _LONGEST_INTERPRETER or not python or " " in python:
        return None
    owner = os.getpid()
    if owner not in _running:
        directory = Path(tempfile.mkdtemp(prefix="ottla-python-"))  # which only this user can enter
        atexit.register(_stop, owner)
        _running[owner] = _write_launcher(directory), _start_server(directory)
    return _running[owner][0]


def _stop(owner: int) -> None:
    if os.getpid() != owner or owner not in _running:  # a fork, or interrupted: the server ends with its standard input
        return
    launcher, server = _running.pop(owner)
    server.kill()
    assert server.stdin is not None
    server.stdin.close()
    with suppress(subprocess.TimeoutExpired):  # only the kernel can delay the end of a killed process
        server.wait(_END_S)
    shutil.rmtree(launcher.parent, ignore_errors=True)


def _start_server(directory: Path) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / SOCKET))
        listener.listen(64)
        environment = {**os.environ, **SINGLE_THREADED}
        environment.setdefault(HASH_SEED, "0")  # as Spark sets it
        return subprocess.Popen(  # noqa: S603 - ends at the end of its standard input
            [sys.executable, "-u", "-m", "ottla.spark.worker_server", str(listener.fileno())],
            stdin=subprocess.PIPE,
            process_group=0,  # like Java: a signal to the group of the driver is not for its forks
            pass_fds=[listener.fileno()],
            env=environment,
        )


def _write_launcher(directory: Path) -> Path:
    launcher = directory / "python"
    text = Path(__file__).with_name("worker_launcher.py").read_text(encoding="utf-8")
    call = f"launch({str(directory / SOCKET)!r}, {sys.executable!r})"
    launcher.write_text(f"#!{sys.executable} -IS\n{text}\n\n{call}\n", encoding="utf-8")
    launcher.chmod(0o700)
    return launcher
