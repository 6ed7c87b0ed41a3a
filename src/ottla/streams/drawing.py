"""Drawings of pipelines: topics and queries as boxes, and arrows between them; for Mermaid, and as SVG. Without Spark.

The SVG has layers from left to right: a box is to the right of the boxes that it gets records from. It needs no font of
its own, since a box is as wide as its longest line in a font of fixed width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from ottla.streams.description import Description

CHARACTER: Final = 7.3
"""The width of a character. All sizes are in pixels."""
LINE: Final = 17
"""The height of a line of text, in a font of 12 pixels."""
PADDING: Final = 12
"""Around the text of a box."""
BOX_GAP: Final = 22
LAYER_GAP: Final = 56
MARGIN: Final = 16
_BASELINE: Final = 13
"""From the top of a line to its baseline."""
_HEAD: Final = (
    "<style>text{font:12px monospace;fill:#222}rect{fill:#fff;stroke:#666}.topic{fill:#e8f1fb;stroke:#4a7ab0}"
    "path{fill:none;stroke:#666}</style>"
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" style="fill:#666"/></marker></defs>'
)


@dataclass
class Graph:
    """Topics and queries, in the order of their declaration. A topic that several pipelines use is one node."""

    topics: dict[str, str] = field(default_factory=dict)
    """The identifier of each topic, by name."""
    boxes: dict[str, Sequence[str]] = field(default_factory=dict)
    """The lines of each node, by identifier."""
    arrows: list[tuple[str, str]] = field(default_factory=list)

    def topic(self, name: str) -> str:
        """Return the identifier of a topic, and add it if it is new."""
        if name not in self.topics:
            self.topics[name] = f"t{len(self.topics)}"
            self.boxes[self.topics[name]] = (name,)
        return self.topics[name]


def graph_of(descriptions: Sequence[Description]) -> Graph:
    """Return the topics and queries of pipelines."""
    graph = Graph()
    for number, description in enumerate(descriptions):
        sources = [graph.topic(name) for name in dict.fromkeys(description.sources.values())]
        for index, query in enumerate(description.queries):
            node = f"q{number}_{index}"
            graph.boxes[node] = (query.name, *map(str, query.operators))
            graph.arrows += [(source, node) for source in sources]
            graph.arrows += [(node, graph.topic(name)) for name in query.topics]
    return graph


def mermaid(descriptions: Sequence[Description]) -> str:
    """Return a drawing of pipelines for Mermaid."""
    graph = graph_of(descriptions)
    lines = ["flowchart LR"]
    for node, box in graph.boxes.items():
        label = "<br/>".join(re.sub(r'["<>#]', " ", line) for line in box)  # '#' begins an entity
        lines.append(f'    {node}[("{label}")]' if node in graph.topics.values() else f'    {node}["{label}"]')
    lines += [f"    {start} --> {end}" for start, end in graph.arrows]
    return "\n".join(lines)


def layers(graph: Graph) -> list[list[str]]:
    """Return the nodes by layer, each to the right of its predecessors, unless these form a cycle."""
    predecessors: dict[str, list[str]] = {node: [] for node in graph.boxes}
    for start, end in graph.arrows:
        predecessors[end].append(start)
    depths = _depths(graph, predecessors)
    rows: list[list[str]] = [[] for _ in range(1 + max(depths.values(), default=-1))]
    for node in depths:
        rows[depths[node]].append(node)
    _sort_rows(rows, predecessors)
    return rows


def _depths(graph: Graph, predecessors: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the layer of each node, counted from the left."""
    found: dict[str, int] = {}
    while len(found) < len(predecessors):
        waiting = [node for node in predecessors if node not in found]
        ready = [node for node in waiting if all(each in found for each in predecessors[node])]
        # In a cycle, the first node that is declared begins.
        for node in ready or waiting[:1]:
            found[node] = 1 + max((found[each] for each in predecessors[node] if each in found), default=-1)
    for node, sources in predecessors.items():
        readers = [found[end] for start, end in graph.arrows if start == node]
        if readers and not sources:
            # Beside its readers: an arrow over several layers would pass behind boxes.
            found[node] = max(0, min(readers) - 1)
    return found


def _sort_rows(rows: list[list[str]], predecessors: Mapping[str, Sequence[str]]) -> None:
    """Sort the nodes of each layer by the mean height of their predecessors, so that few arrows cross."""
    heights: dict[str, float] = {}
    for row in rows:
        for index, node in enumerate(row):
            known = [heights[each] for each in predecessors[node] if each in heights]
            heights[node] = sum(known) / len(known) if known else index
        row.sort(key=heights.__getitem__)
        heights |= {node: index - len(row) / 2 for index, node in enumerate(row)}


@dataclass(frozen=True)
class Box:
    """The place of a node."""

    x: float
    y: float
    width: float
    height: float


def place(graph: Graph) -> tuple[Mapping[str, Box], float, float]:
    """Return the place of each node, and the width and height of the drawing."""
    rows = layers(graph)
    heights = {node: len(lines) * LINE + PADDING for node, lines in graph.boxes.items()}
    tall = max((sum(heights[node] + BOX_GAP for node in row) - BOX_GAP for row in rows), default=0)
    boxes, x = {}, float(MARGIN)
    for row in rows:
        width = max((len(line) for node in row for line in graph.boxes[node]), default=0) * CHARACTER + 2 * PADDING
        y = MARGIN + (tall - sum(heights[node] + BOX_GAP for node in row) + BOX_GAP) / 2
        for node in row:
            boxes[node] = Box(x, y, width, heights[node])
            y += heights[node] + BOX_GAP
        x += width + LAYER_GAP
    return boxes, max(x - LAYER_GAP, MARGIN) + MARGIN, tall + 2 * MARGIN


def svg(descriptions: Sequence[Description]) -> str:
    """Return a drawing of pipelines as an SVG document."""
    graph = graph_of(descriptions)
    boxes, width, height = place(graph)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">', _HEAD]
    for start, end in graph.arrows:
        one, other = boxes[start], boxes[end]
        x, y, to_x, to_y = one.x + one.width, one.y + one.height / 2, other.x, other.y + other.height / 2
        bend = LAYER_GAP / 2
        curve = f"M{x:.0f} {y:.0f}C{x + bend:.0f} {y:.0f} {to_x - bend:.0f} {to_y:.0f} {to_x:.0f} {to_y:.0f}"
        lines.append(f'<path d="{curve}" marker-end="url(#arrow)"/>')
    for node, box in boxes.items():
        size = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
        lines.append(f'<rect {size} rx="14" class="topic"/>' if node in graph.topics.values() else f"<rect {size}/>")
        for number, line in enumerate(graph.boxes[node]):
            x, y = box.x + PADDING, box.y + PADDING / 2 + LINE * number + _BASELINE
            lines.append(f'<text x="{x:.0f}" y="{y:.0f}">{escape(line)}</text>')
    return "\n".join([*lines, "</svg>"])
