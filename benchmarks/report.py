"""The tables of docs/performance.md, written from kept results: between their marks, nothing else is touched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import races, results, spark

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- races: written by `python -m benchmarks --docs` -->\n", "<!-- end of races -->\n"
Aims = Mapping[str, tuple[str, Mapping[str, float], Mapping[str, float]]]
"""A race's title, its aims by figure, and what figures of Ottla itself may be at most."""


def update(kept: Path = results.LAST, page: Path = PAGE, spark_kept: Path = results.SPARK) -> None:
    """Write the tables anew from the results in these files; raises ValueError if the page lacks the marks of one."""
    brokers = {name: (race.title, race.aims, race.limits) for name, race in races.RACES.items()}
    spark_races: Aims = {name: (race.title, race.aims, {}) for name, race in spark.RACES.items()}
    _update(page, "races", kept, brokers, ("kafka", "Kafka"))
    _update(page, "races on Spark", spark_kept, spark_races, (spark.PEER, spark.PEER))


def _update(page: Path, what: str, kept: Path, races_of: Aims, peer: tuple[str, str]) -> None:
    if not kept.exists():
        return
    marks = BEGIN.replace("races", what), END.replace("races", what)
    text = page.read_text()
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{page} lacks {marks[0].strip()} or {marks[1].strip()}")
    page.write_text(head + begin + "\n" + table(json.loads(kept.read_text()), races_of, peer) + "\n" + end + tail)


def table(kept: Mapping[str, Any], races_of: Aims, peer: tuple[str, str]) -> str:
    """Conditions and figures, in Markdown; ratios that miss their aim are bold. `peer`: its key and its heading."""
    key, heading = peer
    lines = ["; ".join(f"{name}: {value}" for name, value in kept["conditions"].items()) + ".", ""]
    lines += [f"| Race | Figure | Ottla | {heading} | Ottla / {heading} | Aim |", "|---|---|---:|---:|---:|---:|"]
    for name, (title, aims, limits) in races_of.items():
        first = f"**{name}**: {title}"
        for figure, row in kept["races"].get(name, {}).items():
            ratio = _ratio(aims.get(figure), limits.get(figure), figure, row)
            figures = f"{_text(row['ottla'])} | {_text(row[key])} | {ratio}"
            lines.append(f"| {first} | {figure} | {figures} |")
            first = ""
    return "\n".join(lines) + "\n"


def _ratio(aim: float | None, limit: float | None, figure: str, row: Mapping[str, float]) -> str:
    ratio = row.get("ratio")
    shown = "-" if ratio is None else f"{ratio:.3g}"
    if limit is not None:
        return f"{shown} | {'' if row['ottla'] <= limit else 'missed: '}Ottla's own ≤ {limit:g}"
    if aim is None:
        return f"{shown} | "
    if ratio is not None and not results.reaches(figure, ratio, aim):
        shown = f"**{shown}**"
    return f"{shown} | {'≥' if results.more_is_better(figure) else '≤'} {aim:g}"


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
