"""The picture of a run: a panel for each figure, with a line for each process and a mark for each kill."""

from __future__ import annotations

from pathlib import Path

from benchmarks.plots import line, text

from tests.soak.growth import MIB, WARM_UP, Point
from tests.soak.verdict import NAMES, History

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 760, 170, 60, 110, 26, 24
MOST_POINTS = 360
COLOURS = {
    "broker-1": "#1f77b4", "broker-2": "#ff7f0e", "broker-3": "#2ca02c", "clients": "#d62728", "connect": "#9467bd",
    "pipeline": "#7f7f7f",
}  # fmt: skip
PANELS = {
    "Memory of each process, MiB": ("memory",),
    "Descriptors": ("descriptors",),
    "Threads": ("threads",),
    "Disk, MiB": ("disk",),
    "Produce latency, ms: p50 and p99 of ten seconds": ("p50_ms", "p99_ms"),
}
BYTES = ("memory", "disk")
# Spark's JVM is ten times as large as everything else.
APART = "pipeline"


def draw(history: History, path: Path) -> None:
    """Write the picture as SVG."""
    panels = [
        (title, {key: points for key, points in history.series.items() if key[1] in figures and key[0] != APART})
        for title, figures in PANELS.items()
    ]
    if apart := {key: points for key, points in history.series.items() if key == (APART, "memory")}:
        panels.insert(1, ("Memory of the pipeline: Spark's JVM and Python, MiB", apart))
    height = PANEL * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, (title, series) in enumerate(panels):
        parts += _panel(number * PANEL, title, series, history)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def _panel(above: float, title: str, series: dict[tuple[str, str], list[Point]], history: History) -> list[str]:
    bottom, right = above + PANEL - BOTTOM, WIDTH - RIGHT
    top_value = 1.1 * max((_peak(points) for points in series.values()), default=1.0) or 1.0
    unit = MIB if any(figure in BYTES for _, figure in series) else 1
    end_s = history.end_s or 1.0

    def place(point: Point) -> Point:
        height = min(point[1], top_value) / top_value * (PANEL - TOP - BOTTOM)
        return LEFT + point[0] / end_s * (right - LEFT), bottom - height

    parts = [text(LEFT, above + 16, title, size=12, anchor="start")]
    for step in range(4):
        value = top_value * step / 3
        y = place((0, value))[1]
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(text(LEFT - 6, y + 4, f"{value / unit:.3g}", anchor="end"))
    warm = place((end_s * WARM_UP, 0))[0]
    parts.append(_upright(warm, above + TOP, bottom, 'stroke="#bbb" stroke-dasharray="3 3"'))
    for at_s, name in history.kills:
        x = place((at_s, 0))[0]
        parts.append(_upright(x, bottom, bottom + 5, f'stroke="{COLOURS[name]}"'))
    parts += [text(place((end_s * k / 6, 0))[0], bottom + 16, f"{end_s * k / 6 / 60:.0f} min") for k in range(7)]
    for number, ((process, figure), points) in enumerate(sorted(series.items())):
        colour = COLOURS[process]
        style = ' stroke-opacity="0.45"' if figure == "p99_ms" else ""
        parts.append(line([place(point) for point in _thinned(points)], colour, style))
        label = NAMES[figure].split()[-2].rstrip(",") if figure.endswith("_ms") else process
        parts.append(text(right + 8, above + TOP + 12 + 15 * number, label, anchor="start", colour=colour))
    return parts


def _upright(x: float, top: float, bottom: float, style: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" {style}/>'


def _thinned(points: list[Point]) -> list[Point]:
    """Keep the largest value of each stretch, so that peaks stay."""
    step = max(1, len(points) // MOST_POINTS)
    return [max(points[at : at + step], key=lambda point: point[1]) for at in range(0, len(points), step)]


def _peak(points: list[Point]) -> float:
    """The 99th percentile: a peak during a kill must not flatten the rest."""
    values = sorted(value for _, value in points)
    return values[int(0.99 * (len(values) - 1))]
