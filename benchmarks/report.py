"""The table of docs/performance.md, written from kept results: between its two marks, nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.races import RACES

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- races: written by `python -m benchmarks --docs` -->\n", "<!-- end of races -->\n"


def update(kept: Path = results.LAST, page: Path = PAGE) -> None:
    """Write the table anew from the results in `kept`; raises ValueError if the page has no marks."""
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks {BEGIN.strip()} or {END.strip()}")
    page.write_text(head + begin + "\n" + table(json.loads(kept.read_text())) + "\n" + end + tail)


def table(kept: dict[str, Any]) -> str:
    """Conditions and figures, in Markdown; ratios that miss their aim are bold."""
    lines = ["; ".join(f"{name}: {value}" for name, value in kept["conditions"].items()) + ".", ""]
    lines += ["| Race | Figure | Ottla | Kafka | Ottla / Kafka | Aim |", "|---|---|---:|---:|---:|---:|"]
    for name, race in RACES.items():
        title = f"**{name}**: {race.title}"
        for figure, row in kept["races"].get(name, {}).items():
            figures = f"{_text(row['ottla'])} | {_text(row['kafka'])} | {_ratio(name, figure, row)}"
            lines.append(f"| {title} | {figure} | {figures} |")
            title = ""
    return "\n".join(lines) + "\n"


def _ratio(name: str, figure: str, row: dict[str, float]) -> str:
    ratio, aim = row.get("ratio"), RACES[name].aims.get(figure)
    shown = "-" if ratio is None else f"{ratio:.3g}"
    limit = RACES[name].limits.get(figure)
    if limit is not None:
        return f"{shown} | {'' if row['ottla'] <= limit else 'missed: '}Ottla's own ≤ {limit:g}"
    if aim is None:
        return f"{shown} | "
    if ratio is not None and not results.reaches(figure, ratio, aim):
        shown = f"**{shown}**"
    return f"{shown} | {'≥' if results.more_is_better(figure) else '≤'} {aim:g}"


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
