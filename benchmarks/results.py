"""The results of races as JSON: stored, and compared with the previous results.

Only ratios are compared: of Ottla's figure to its peer's in the same run, which depend much less on the machine than
the figures do. `benchmarks/last.json` is what `python -m benchmarks --json benchmarks/last.json` wrote last.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

LAST = Path(__file__).parent / "last.json"
SPARK = Path(__file__).parent / "spark.json"
"""The races on Spark have a file of their own: they run without the others, under their own conditions."""
# Runs on a shared machine differ by this much for no reason.
TOLERANCE = 1.5
# Below this both are as good as nothing, and their ratio is noise.
_LEAST = {"% of a core": 2.0, "p99 ms": 0.05, "average ms": 0.05, "MB more than without them": 5.0}

Results = dict[str, dict[str, dict[str, float]]]
"""Race, figure, and who: "ottla", its peer's name, and "ratio"."""


def more_is_better(figure: str) -> bool:
    """Whether a higher figure is the better one."""
    return "/s" in figure or "CPU-second" in figure


def reaches(figure: str, ratio: float, aim: float) -> bool:
    """Whether the ratio is on the right side of the aim."""
    return ratio >= aim if more_is_better(figure) else ratio <= aim


def compared(ottla: Mapping[str, float], peer_name: str, peer: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The figures of a race with their ratios."""
    return {
        figure: {"ottla": value, peer_name: peer[figure]} | ({"ratio": value / peer[figure]} if peer[figure] else {})
        for figure, value in ottla.items()
        if figure in peer
    }


def conditions(rounds: int, scale: float) -> dict[str, Any]:
    """All that a figure depends on, as far as this program knows."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "python": platform.python_version(),
        "java": _java(),
        "kafka": "4.3, heap of 1 GiB, G1",
        "librdkafka client": version("confluent-kafka"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 2),
        "flush": "as by default (none)",
        "compression": "none",
        "rounds": rounds,
        "scale": scale,
    }


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, cwd=Path(__file__).parent
        )
    except OSError:
        return "unknown"
    return ((done.stdout or done.stderr).splitlines() or ["unknown"])[0]


def _commit() -> str:
    return _first_line("git", "describe", "--always", "--dirty")


def _java() -> str:
    return _first_line("java", "-version")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def write(path: Path, found: Results, what: Mapping[str, Any]) -> None:
    """Keep results; races that are in the file and were not run now stay in it."""
    races = json.loads(path.read_text())["races"] if path.exists() else {}
    rounded = {
        race: {figure: {who: float(f"{value:.4g}") for who, value in row.items()} for figure, row in figures.items()}
        for race, figures in found.items()
    }
    text = json.dumps({"conditions": what, "races": races | rounded}, indent=1)
    path.write_text(text + "\n")


def regressions(found: Results, last: Results, tolerance: float = TOLERANCE) -> list[str]:
    """A line for each figure whose ratio is worse than the last one by more than the tolerance."""
    lines = []
    for race, figures in found.items():
        for figure, row in figures.items():
            before = last.get(race, {}).get(figure, {}).get("ratio")
            now = row.get("ratio")
            if before is None or now is None or row["ottla"] <= _LEAST.get(figure, 0):
                continue
            worse = before / now if more_is_better(figure) else now / before
            if worse > tolerance:
                lines.append(f"{race}: {figure}: {now:.3g} of the peer's figure, {before:.3g} last time")
    return lines


def last_results(*paths: Path) -> Results:
    """Return the stored results, from the files of all races or from these; nothing where there is no file."""
    kept: Results = {}
    for path in paths or (LAST, SPARK):
        if path.exists():
            kept |= json.loads(path.read_text())["races"]
    return kept
