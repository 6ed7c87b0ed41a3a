"""Pipelines whose results are their own input, directly or through other pipelines: they would run without end.

Without Spark. A topic that is only read as a table starts no micro-batches, so it does not close a loop through another
pipeline. Pipelines of other runs are not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_ADVICE: Final = "write to another topic, or set loop=True of the pipeline if a condition of yours ends it"


@dataclass(frozen=True)
class Ends:
    """The topics at both ends of a pipeline. `may_loop` is a promise of the program that a loop ends."""

    name: str
    streams: frozenset[str]
    tables: frozenset[str]
    writes: frozenset[str]
    may_loop: bool = False


def loops(pipelines: Sequence[Ends]) -> Iterator[tuple[str, str]]:
    """Yield the name of a pipeline and a sentence about its loop. Each loop has one sentence."""
    checked = [each for each in pipelines if not each.may_loop]
    for number, each in enumerate(checked):
        for topic in sorted(each.writes & each.streams):
            yield each.name, f"its output {topic!r} is its input, too: it would process its own results; {_ADVICE}"
        for topic in sorted(each.writes & each.tables - each.streams):
            yield each.name, f"its output {topic!r} is its table, too: it would read its own results; {_ADVICE}"
        # A loop is found at the first of its pipelines.
        path = _way_back(each, checked[number + 1 :])
        if path:
            way = ", ".join(f"{reader!r} reads {topic!r}" for reader, topic in path)
            yield each.name, f"its results come back to it: {way}; {_ADVICE}"


def _way_back(start: Ends, others: Sequence[Ends]) -> list[tuple[str, str]]:
    """Return the shortest way from a pipeline through others to its input: each reader and its topic; or nothing."""
    waiting: deque[tuple[Ends, list[tuple[str, str]]]] = deque([(start, [])])
    seen = {start.name}
    while waiting:
        writer, path = waiting.popleft()
        back = sorted(writer.writes & start.streams)
        if path and back:
            return [*path, (start.name, back[0])]
        for reader in others:
            shared = sorted(writer.writes & reader.streams)
            if shared and reader.name not in seen:
                seen.add(reader.name)
                waiting.append((reader, [*path, (reader.name, shared[0])]))
    return []
