"""Two charts of delays as an SVG, which any browser shows: no library needed for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, BAR, LEFT, RIGHT = 860, 22, 230, 70
INK, GREY, BLUE, RED = "#222", "#ddd", "#4878a8", "#b8423c"


def plot(path: Path, title: str, airlines: Mapping[str, float], weeks: Sequence[float]) -> None:
    """Mean delays in minutes: a bar for each airline, the longest first, and a line through the weeks of the year."""
    height = 110 + BAR * len(airlines) + 260
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        text(20, 34, title, size=20),
        text(20, 64, "Mean delay of a departure, minutes, by airline"),
        *bars(airlines, 80),
        text(20, 120 + BAR * len(airlines), "and by week"),
        *line(weeks, 135 + BAR * len(airlines), 200),
        "</svg>",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def text(x: float, y: float, what: str, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(what)}</text>'


def bars(values: Mapping[str, float], top: float) -> list[str]:
    longest = max([1.0, *values.values()])
    parts = []
    for row, (name, value) in enumerate(sorted(values.items(), key=lambda item: -item[1])):
        y = top + row * BAR
        length = max(0.0, value) / longest * (WIDTH - LEFT - RIGHT)
        parts.append(f'<rect x="{LEFT}" y="{y:.1f}" width="{length:.1f}" height="{BAR - 6}" fill="{BLUE}"/>')
        parts.append(text(LEFT - 8, y + 12, name, "end"))
        parts.append(text(LEFT + length + 6, y + 12, f"{value:.1f}"))
    return parts


def line(values: Sequence[float], top: float, height: float) -> list[str]:
    high = max([1.0, *values]) * 1.1
    step = (WIDTH - 60 - 20) / max(1, len(values) - 1)

    def place(value: float) -> float:
        return top + height * (1 - max(0.0, value) / high)

    parts = []
    for mark in range(0, int(high) + 1, 10):
        y = place(mark)
        parts.append(f'<line x1="60" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="{GREY}"/>')
        parts.append(text(52, y + 4, str(mark), "end"))
    weeks = range(0, len(values), 4)
    parts += [text(60 + week * step, top + height + 18, str(week + 1), "middle") for week in weeks]
    points = " ".join(f"{60 + i * step:.1f},{place(value):.1f}" for i, value in enumerate(values))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{RED}" stroke-width="2.5"/>')
    return parts
