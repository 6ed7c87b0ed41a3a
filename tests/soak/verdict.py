"""The samples of a run by process and figure, the table of its figures, and what grew."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.growth import MIB, Growth, Point, growth

OF_PROCESSES = ("memory", "descriptors", "threads", "disk")
OF_REPORTS = ("p50_ms", "p99_ms")
NAMES = {
    "memory": "memory, MiB", "descriptors": "descriptors", "threads": "threads", "disk": "disk, MiB",
    "p50_ms": "produce latency p50, ms", "p99_ms": "produce latency p99, ms",
}  # fmt: skip


@dataclass
class History:
    """The points of a run: `series[process, figure]`. `killed` processes do not live throughout."""

    series: dict[tuple[str, str], list[Point]] = field(default_factory=lambda: defaultdict(list))
    kills: list[tuple[float, str]] = field(default_factory=list)
    acknowledged: int = 0
    minutes: float = 0.0

    @property
    def end_s(self) -> float:
        """The time of the last sample."""
        return max((points[-1][0] for points in self.series.values()), default=0.0)

    @property
    def killed(self) -> set[str]:
        """The processes that were killed at least once."""
        return {name for _, name in self.kills}


def read(path: Path) -> History:
    """Read a file of samples."""
    history = History()
    for line in path.read_text().splitlines():
        row = json.loads(line)
        at_s = row["at_s"]
        if "killed" in row:
            history.kills.append((at_s, row["killed"]))
        elif "process" in row:
            for figure in OF_PROCESSES:
                history.series[row["process"], figure].append((at_s, row[figure]))
        elif "report" in row:
            history.acknowledged = sum(value for name, value in row.items() if name.endswith(" acknowledged"))
            for figure in OF_REPORTS:
                if figure in row:
                    history.series["clients", figure].append((at_s, row[figure]))
    history.minutes = history.end_s / 60
    return history


def judged(history: History) -> dict[tuple[str, str], Growth]:
    """Judge the figures of processes that were never killed, and the disk of all."""
    found = {}
    for (process, figure), points in history.series.items():
        lives_throughout = process not in history.killed or figure == "disk"
        if lives_throughout and (judgement := growth(figure, points, history.end_s)):
            found[process, figure] = judgement
    return found


def problems(history: History) -> list[str]:
    """Return what grew by more than it may."""
    return [
        f"{process}: {NAMES[figure]} grows by {_number(figure, each.per_hour)} an hour,"
        f" from {_number(figure, each.first)} to {_number(figure, each.last)}"
        for (process, figure), each in judged(history).items()
        if each.grows
    ]


def table(history: History) -> str:
    """Return the figures as a table in Markdown, and a line about the run."""
    lines = [
        f"{history.minutes:.0f} minutes, {len(history.kills)} kills, {history.acknowledged:,} records acknowledged.",
        "",
        "| process | figure | after the warm-up | at the end | per hour |",
        "|---|---|---|---|---|",
    ]
    for (process, figure), each in sorted(judged(history).items()):
        values = " | ".join(_number(figure, value) for value in (each.first, each.last, each.per_hour))
        lines.append(f"| {process} | {NAMES[figure]} | {values} |")
    return "\n".join(lines)


def _number(figure: str, value: float) -> str:
    return f"{value / MIB if figure in ('memory', 'disk') else value:.1f}"
