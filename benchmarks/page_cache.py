"""The memory that the page cache grows into, which decides what a written megabyte costs.

A virtual machine gets memory from its host when it touches it for the first time, and may give free memory back. The
first write to such a page costs ten times as much as the next one, in system time of the process that writes. So a run
that finds free pages which the machine has used before looks several times cheaper than a run that does not.
"""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.brokers import Broker

_CHUNK = bytes(850_000)
# The client and the broker take some pages, too.
_MARGIN = 1.25


def touch(broker: Broker, megabytes: float) -> None:
    """Write and delete a file: the next `megabytes` that are written find free pages that the machine has used."""
    write_alone(broker.data.parent, megabytes * _MARGIN).unlink()


@contextlib.contextmanager
def filled(broker: Broker) -> Iterator[None]:
    """Write a file that takes all free memory, so that the kernel drops old pages of the page cache for new ones.

    Raises OSError if the disk has less space than the machine has free memory.
    """
    path = write_alone(broker.data.parent, _free_mb())
    try:
        yield
    finally:
        path.unlink()


def _free_mb() -> float:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemFree:"))
    return int(line.split()[1]) * 1024 / 1e6


def write_alone(directory: Path, megabytes: float) -> Path:
    """Write a file in a bare loop of pwrite(2)."""
    number, name = tempfile.mkstemp(dir=directory, prefix="page-cache-")
    try:
        for position in range(0, int(megabytes * 1e6), len(_CHUNK)):
            os.pwrite(number, _CHUNK, position)
    finally:
        os.close(number)
    return Path(name)


def system_ms_per_mb(directory: Path, megabytes: float) -> float:
    """Measure the kernel's time for a megabyte from a bare loop of pwrite(2); the file stays in `directory`."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_stime
    write_alone(directory, megabytes)
    return (resource.getrusage(resource.RUSAGE_THREAD).ru_stime - before) / megabytes * 1e3
