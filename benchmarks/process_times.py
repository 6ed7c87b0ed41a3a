"""The processor time of each part of a program: the JVM and its compiler, Spark's Python processes.

A thread notes the times of all processes of a program, because Spark's daemons ignore SIGCHLD: the time of a worker
that ended is added to no other process. It misses processes that live shorter than its interval, such as `chmod`. The
kernel tells times in hundredths of a second for each process, so that a figure needs seconds of work.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

NOTE_S = 0.1
JVM, COMPILER, COLLECTOR = "JVM", "JVM's compiler", "JVM's garbage collection"
WORKERS, PLANNERS, OTHERS = "Python workers", "Python on the driver", "other processes"
_TICKS = os.sysconf("SC_CLK_TCK")
_JVM_THREADS = {"C1 Comp": COMPILER, "C2 Comp": COMPILER, "GC Thre": COLLECTOR, "G1 ": COLLECTOR, "VM Thre": COLLECTOR}


@dataclass(frozen=True)
class Process:
    """A row of /proc/PID/stat; `start` tells a later process with the same number apart."""

    pid: int
    parent: int
    session: int
    start: str
    used_s: float


def processes() -> dict[int, Process]:
    """All processes of the machine, by number."""
    found = {}
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # it ended, or has no number
            fields = _fields(place / "stat")
            found[int(place.name)] = Process(
                int(place.name), int(fields[1]), int(fields[3]), fields[19], sum(map(int, fields[11:13])) / _TICKS
            )
    return found


def session_of(pid: int) -> Callable[[dict[int, Process]], list[Process]]:
    """Choose the processes of a session."""
    return lambda rows: [row for row in rows.values() if row.session == pid]


def children_of(pid: int, without: int) -> Callable[[dict[int, Process]], list[Process]]:
    """Choose the descendants of a process, but not `without` and its descendants."""

    def choose(rows: dict[int, Process]) -> list[Process]:
        chosen = []
        for row in rows.values():
            above = row
            while above.pid not in (pid, without) and above.parent in rows:
                above = rows[above.parent]
            if above.pid == pid and row.pid != pid:
                chosen.append(row)
        return chosen

    return choose


class ProcessTimes:
    """Seconds of user and system time of chosen processes by part, also of those that have ended."""

    def __init__(self, choose: Callable[[dict[int, Process]], list[Process]]) -> None:
        self._choose = choose
        self._parts: dict[tuple[int, str], str] = {}
        self._times: dict[tuple[int, str, str], float] = {}
        self._lock = threading.Lock()

    def watch(self, is_running: Callable[[], bool]) -> None:
        """Note the times in a thread until `is_running` is false."""

        def note() -> None:
            while is_running():
                self._note()
                time.sleep(NOTE_S)

        threading.Thread(target=note, daemon=True).start()

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each part has used so far."""
        self._note()
        total: defaultdict[str, float] = defaultdict(float)
        with self._lock:
            for (_, _, part), used in self._times.items():
                total[part] += used
        return total

    def _note(self) -> None:
        with self._lock:
            for row in self._choose(processes()):
                key = row.pid, row.start
                part = self._parts.get(key)
                if part not in (JVM, WORKERS):  # a process is a copy of its parent before it runs its program
                    self._times.pop((*key, part or OTHERS), None)
                    part = self._parts[key] = _part_of(row.pid)
                used = row.used_s
                if part == JVM:
                    for name, seconds in _jvm_threads(row.pid).items():
                        self._keep(row, name, seconds)
                    used -= self._times.get((*key, COMPILER), 0.0) + self._times.get((*key, COLLECTOR), 0.0)
                self._keep(row, part, used)

    def _keep(self, row: Process, part: str, seconds: float) -> None:
        key = row.pid, row.start, part
        self._times[key] = seconds if part == JVM else max(seconds, self._times.get(key, 0.0))


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the seconds that each part has used between two calls of `seconds`."""
    return {part: used - before.get(part, 0.0) for part, used in sorted(after.items())}


def _part_of(pid: int) -> str:
    """By the command line, or for a fork of `ottla.spark.worker_server` by the name that it gives itself."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it ended
        return OTHERS
    if words[0].endswith("java"):
        return JVM
    is_fork = "ottla.spark.worker_server" in words
    if "pyspark.daemon" in words or (is_fork and name == "daemon"):
        return WORKERS
    return PLANNERS if is_fork or any(word.startswith("pyspark.") for word in words) else OTHERS


def _jvm_threads(pid: int) -> dict[str, float]:
    """The compiler's and the collector's threads; those that ended count as the rest of the JVM."""
    found: defaultdict[str, float] = defaultdict(float)
    with suppress(OSError):
        for place in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                text = (place / "stat").read_text()
                name = text[text.index("(") + 1 : text.rindex(")")]
                part = next((part for start, part in _JVM_THREADS.items() if name.startswith(start)), None)
                if part is not None:
                    found[part] += sum(map(int, text.rsplit(")", 1)[1].split()[11:13])) / _TICKS
    return found


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rsplit(")", 1)[1].split()
