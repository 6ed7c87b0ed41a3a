"""The task of a contender, and the measuring around it."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

WINDOW = 10_000


@dataclass(frozen=True)
class Task:
    """One run of one race."""

    race: str
    bootstrap: str
    topic: str
    count: int
    """Records to send or to read."""
    size: int
    """Bytes of each value."""
    group: str = ""
    """The consumer group of this run."""
    compression: str = "none"
    keyed: bool = False

    @property
    def value(self) -> bytes:
        """A value of the right size, not all one byte."""
        return (bytes(range(32, 127)) * (self.size // 95 + 1))[: self.size]


Race: TypeAlias = Callable[[Task], int | list[float]]
"""Returns the number of records, or the seconds of each."""


def run(
    races: Mapping[str, Race],
    started: float,
    prepare: Mapping[str, Callable[[Task], None]] = MappingProxyType({}),
) -> None:
    """Run the race that the command line names, and print its figures as a line of JSON.

    `started` is the process's CPU time when the contender's module began to be imported; `prepare` makes what a race
    is given, and does not count.
    """
    task = Task(**json.loads(sys.argv[1]))
    if "arrow" in task.race or "batch" in task.race:
        import_module("pyarrow.compute")  # who uses Arrow has it loaded
    if task.race in prepare:
        prepare[task.race](task)
    cpu, clock = time.process_time(), time.perf_counter()
    outcome = races[task.race](task)
    seconds, used = time.perf_counter() - clock, time.process_time() - cpu
    if isinstance(outcome, list):
        cuts = statistics.quantiles(outcome, n=100)
        figures = {"p50 us": cuts[49] * 1e6, "p99 us": cuts[98] * 1e6, "CPU us": used / len(outcome) * 1e6}
    else:
        if outcome < task.count:
            raise SystemExit(f"{outcome} of {task.count} records")
        figures = {"CPU s per million": used / outcome * 1e6, "records/s": outcome / seconds}
    figures["start CPU s"] = cpu - started
    # Not ru_maxrss: that begins with the parent process's value.
    status = Path("/proc/self/status").read_text()
    figures["peak MB"] = int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    print(json.dumps(figures))
