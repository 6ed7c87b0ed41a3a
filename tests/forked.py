"""Ottla's servers as processes that are forked instead of started: without the 0.2 CPU seconds of their imports.

`start(command, ...)` does what `start_really(command, ...)` does, for commands `python -m MODULE ...`. Each process of
tests has one parent for each of such commands (`tests/forking_parent.py`), which imports the modules of its command
once, and no others. A forked process has its own process id, memory, descriptors, working directory, arguments and
streams; signals reach it alone, and its exit status is its own. It lacks a command line of its own in /proc, and is not
a child of the tests.

Tests of starts, of memory, of limits, of kills in a loop and of the package use real processes. So do measurements and
the soak, which run without pytest, and each start while something that a process inherits differs from what the forking
parent inherited: environment, limits of resources, umask, signals, priority, process group.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tests.forking_parent import ANSWER_BYTES, PASSED_ON, command_of

START_TIMEOUT_S = 60.0
PROGRAM = Path(__file__).with_name("forking_parent.py")
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
OF_EACH_TEST = "PYTEST_CURRENT_TEST"
"""A variable that pytest sets for each test."""
INHERITED = ("Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "SigBlk", "SigIgn", "CapBnd", "Cpus_allowed_list")
LIMITS = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]


class ForkedProcess:
    """The process, with the methods of `subprocess.Popen` that tests use."""

    stdin: IO[bytes] | None = None
    """For the caller's end of a pipe that it has given."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._reading = threading.Lock()
        self.returncode: int | None = None
        pid = self._read(START_TIMEOUT_S)
        if pid is None:
            os.close(pipe)
            raise TimeoutError(f"no process was forked within {START_TIMEOUT_S:g} s")
        self.pid = pid

    def _read(self, timeout_s: float) -> int | None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return None
        answer = os.read(self._pipe, ANSWER_BYTES)
        if not answer:
            raise RuntimeError("the parent of forked processes ended")
        return int.from_bytes(answer, "little", signed=True)

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        with self._reading:
            if self.returncode is None:
                self.returncode = self._read(timeout)
                if self.returncode is None:
                    raise subprocess.TimeoutExpired("a forked process", timeout)
                os.close(self._pipe)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | ForkedProcess


def inherited() -> tuple[object, ...]:
    """Return the state that a new process inherits from this one, except descriptors and the working directory."""
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return (
        {name: value for name, value in os.environ.items() if not name.startswith(PASSED_ON)},
        [resource.getrlimit(each) for each in LIMITS],
        os.getpriority(os.PRIO_PROCESS, 0),
        os.getpgrp(),
        [line for line in lines if line.startswith(INHERITED)],
    )


BEGIN = inherited()
"""The state when the tests began, which the forking parent inherits. A test may have changed it, and restores it."""


class _Parent:
    """The running forking parent."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **UNBUFFERED},
            )

    def fork(self, words: list[str], streams: list[int], cwd: str, python_path: Sequence[str] = ()) -> ForkedProcess:
        theirs, ours = os.pipe()[::-1]
        current = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        try:
            request = pickle.dumps((words, cwd, list(python_path), current | preceded(python_path)))
            socket.send_fds(self._control, [request], [*streams, theirs])
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(ours)

    def close(self) -> None:
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)


_lock = threading.Lock()
_parents: dict[tuple[str, ...], _Parent] = {}


def preceded(python_path: Sequence[str]) -> dict[str, str]:
    """Return the variable $PYTHONPATH with these directories before its own; nothing without any."""
    own = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*python_path, *filter(None, [own])])} if python_path else {}


Start = Callable[..., Process]


def start_really(
    command: list[str], stdout: IO[bytes], stderr: IO[bytes], cwd: Path,
    python_path: Sequence[str] = (), stdin: IO[bytes] | None = None,
) -> Process:  # fmt: skip
    """Start `command` with unbuffered standard output, by default without input. `python_path` precedes $PYTHONPATH."""
    environment = {**os.environ, **UNBUFFERED, **preceded(python_path)}
    given = subprocess.DEVNULL if stdin is None else stdin
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, stdin=given, env=environment, cwd=cwd)


def start(
    command: list[str], stdout: IO[bytes], stderr: IO[bytes], cwd: Path,
    python_path: Sequence[str] = (), stdin: IO[bytes] | None = None,
) -> Process:  # fmt: skip
    """Do the same by a fork if the process would inherit the same, otherwise start it really."""
    is_module = command[:2] == [sys.executable, "-m"]
    if not is_module or OF_EACH_TEST not in os.environ or inherited() != BEGIN:
        return start_really(command, stdout, stderr, cwd, python_path, stdin)
    prepared = command_of(command[2:])
    with _lock:
        parent = _parents.get(prepared)
        if parent is None:
            parent = _parents[prepared] = _Parent()
            atexit.register(parent.close)
    if parent.owner != os.getpid():
        return start_really(command, stdout, stderr, cwd, python_path, stdin)
    with Path(os.devnull).open("rb") as nothing:
        streams = [(stdin or nothing).fileno(), stdout.fileno(), stderr.fileno()]
        return parent.fork(command[2:], streams, str(cwd), python_path)


def run(
    words: Sequence[str], directory: Path, timeout_s: float, python_path: Sequence[str] = (), start: Start = start
) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS` in a directory, by a fork if that is the same. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = start([sys.executable, "-m", *words], out, errors, directory, python_path)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            raise
        texts = []
        for each in (out, errors):
            each.seek(0)
            texts.append(each.read().decode())
        return subprocess.CompletedProcess(list(words), code, *texts)


run_really = functools.partial(run, start=start_really)
"""Does the same in a new process."""
