"""Work as a generator: it yields where other work may run in between, and returns its result.

It yields None to go on later, or a `Completion` to go on when that is done (`result_of`).

Cores and handlers write such generators; the broker's `Worker` runs them (`broker/work.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from typing import Any, TypeAlias, TypeVar

from ottla.common.completion import Completion

R = TypeVar("R")

Slices: TypeAlias = Generator[Any, None, R]

_SORTED_AT_ONCE = 5_000


def result_of(completion: Completion[R]) -> Slices[R]:
    """Wait for the completion; its result, or its error raised."""
    if not completion.done:
        yield completion
    return completion.result()


def finish(work: Slices[R]) -> R:
    """Do all of the work now; it must not wait for anything."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


def sort_in_slices(names: Iterable[str]) -> Slices[Iterator[str]]:
    """The names in order: sorted in parts, which the returned iterator merges."""
    rest = list(names)
    parts = []
    for start in range(0, len(rest), _SORTED_AT_ONCE):
        parts.append(sorted(rest[start : start + _SORTED_AT_ONCE]))
        yield
    return merge(*parts)
