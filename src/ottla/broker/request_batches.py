"""Splits a request with many partitions into requests with a few, each of which is handled in one step.

A shard of the group coordinator decides on a request in one step. Kafka limits the time that this takes by the size of
a batch (a larger OffsetCommit fails). Here a larger request is split, and requests of other clients are handled in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

MOST_ROWS = 1_000
"""Rows that a shard handles at once: some 10 ms for commits."""


def in_parts(
    topics: Iterable[T], rows_of: Callable[[T], Sequence[R]], with_rows: Callable[[T, list[R]], T]
) -> Iterator[list[T]]:
    """Yield lists of topics with at most `MOST_ROWS` rows each; `with_rows` copies a topic with some of its rows."""
    part: list[T] = []
    left = MOST_ROWS
    for topic in topics:
        rows = rows_of(topic)
        for start, stop in _ranges(len(rows), left):
            part.append(with_rows(topic, list(rows[start:stop])))
            left -= max(stop - start, 1)
            if left <= 0:
                yield part
                part, left = [], MOST_ROWS
    if part:
        yield part


def _ranges(count: int, first: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the parts of `count` rows: the first has at most `first`, others at most `MOST_ROWS`.

    Yields one empty part if `count` is 0.
    """
    start, stop = 0, min(first, count)
    yield start, stop
    while stop < count:
        start, stop = stop, min(stop + MOST_ROWS, count)
        yield start, stop
