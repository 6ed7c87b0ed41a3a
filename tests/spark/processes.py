"""The processes of a program with Spark, all in the session of its leader: to be paused or killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

DRIVER, JVM, EXECUTOR, DAEMON, WORKER, PLANNER = "driver", "driver's JVM", "executor", "daemon", "worker", "planner"
SERVER = "server of forks"
COMMAND = "command of Java"
"""A command that Java runs for itself, such as chmod. It has no part in Spark, and is not killed."""
_SERVER = "ottla.spark.worker_server"

ROUNDS = 100


@dataclass(frozen=True)
class Process:
    """A process of a Spark program."""

    pid: int
    parent: int
    kind: str


def processes_of(leader: int) -> list[Process]:
    """All processes in the session of a driver; Python's workers are in process groups of their own."""
    commands: dict[int, tuple[int, str, str]] = {}
    for path in Path("/proc").iterdir():
        # A process may end while it is read.
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.name)
            if os.getsid(pid) == leader:
                state, parent = (path / "stat").read_text().rsplit(")", 1)[1].split()[:2]
                if state != "Z":
                    command = (path / "cmdline").read_text().replace("\0", " ")
                    commands[pid] = int(parent), command, (path / "comm").read_text().strip()
    daemons = {pid for pid, (_, command, name) in commands.items() if "pyspark.daemon" in command or name == "daemon"}
    return [
        Process(pid, parent, DRIVER if pid == leader else _kind(command, name, is_forked=parent in daemons))
        for pid, (parent, command, name) in commands.items()
    ]


def _kind(command: str, name: str, *, is_forked: bool) -> str:
    if "CoarseGrainedExecutorBackend" in command:
        return EXECUTOR
    if "org.apache.spark" in command:
        return JVM
    if _SERVER in command and name.startswith("python") and name != "python_streamin":
        return SERVER
    if "pyspark.daemon" in command or name == "daemon":
        return WORKER if is_forked else DAEMON
    return PLANNER if "python" in command else COMMAND


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_session(leader: int) -> None:
    """Kill all processes of a session with SIGKILL, also those that they start meanwhile."""
    for _ in range(ROUNDS):
        found = processes_of(leader)
        if not found:
            return
        for process in found:
            send_signal(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    raise AssertionError(f"processes survive SIGKILL: {found}")
