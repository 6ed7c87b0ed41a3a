"""Samples of processes: memory, descriptors, threads, CPU time; and the disk that a directory takes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def sample(pid: int, directory: Path | None = None) -> dict[str, float]:
    """Return the figures of a process and its descendants; empty if it has ended. `disk` is the size of `directory`.

    Bytes and seconds. Memory that processes share counts for each of them.
    """
    total: dict[str, float] = {}
    for each in family(pid):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            for name, value in _of_one(Path(f"/proc/{each}")).items():
                total[name] = total.get(name, 0) + value
    if total and directory is not None:
        total["disk"] = disk(directory)
    return total


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def disk(directory: Path) -> int:
    """Return the bytes that the files of a directory take on the disk."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # it was deleted
                total += os.stat(os.path.join(parent, name)).st_blocks * 512
    return total


def _of_one(process: Path) -> dict[str, float]:
    words = (process / "stat").read_text().rpartition(")")[2].split()
    return {
        "memory": int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir(process / "fd")),
        "threads": int(words[17]),
        "cpu_s": sum(map(int, words[11:13])) / _TICKS,
    }
