"""Line charts as SVG, without a library: a few series of points, and a model as a line through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 560, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 46
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
STEPS = 40


class Chart(NamedTuple):
    """Points by the name of their series; `model` is drawn as a dashed line of the first series. x is logarithmic."""

    title: str
    x_label: str
    y_label: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    model: Callable[[float], float] | None = None


def write(path: Path, chart: Chart) -> None:
    """Draw the chart."""
    points = [point for series in chart.series.values() for point in series]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    top = max(y for _, y in points) * 1.1 or 1.0
    if chart.model is not None:
        top = max(top, chart.model(high) * 1.05)

    def place(x: float, y: float) -> tuple[float, float]:
        share = math.log(x / low) / math.log(high / low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(WIDTH / 2, 20, chart.title, size=14),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, chart.x_label),
        text(16, (TOP + HEIGHT - BOTTOM) / 2, chart.y_label, turned=True),
    ]
    for step in range(5):
        value = top * step / 4
        y = place(low, value)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{value:.3g}", anchor="end"))
    ticks = sorted({x for x, _ in points})
    parts += [text(place(x, 0)[0], HEIGHT - BOTTOM + 16, f"{x:,.0f}") for x in ticks]
    if chart.model is not None and high > low:
        xs = [low * (high / low) ** (step / STEPS) for step in range(STEPS + 1)]
        parts.append(line([place(x, chart.model(x)) for x in xs], COLOURS[0], ' stroke-dasharray="5 4"'))
    for number, (name, series) in enumerate(chart.series.items()):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(x, y) for x, y in series]
        if chart.model is None:
            parts.append(line(placed, colour))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in placed]
        parts.append(text(LEFT + 10, TOP + 14 + 16 * number, name, anchor="start", colour=colour))
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def line(placed: Sequence[tuple[float, float]], colour: str, style: str = "") -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"{style}/>'


def text(
    x: float, y: float, text: str, *, size: int = 11, anchor: str = "middle", colour: str = "#333", turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}{turn}>{escape(text)}</text>"
