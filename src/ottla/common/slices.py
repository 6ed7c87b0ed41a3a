"""Work as a generator: it yields where other work may run, and returns its result.

It yields None to continue later, or a `Completion` to continue when that is done (`result_of`).

Cores and handlers write such generators; the broker's `Worker` runs them (`common/work.py`).
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
    """Wait for the completion; returns its result or raises its error."""
    if not completion.done:
        yield completion
    return completion.result()


def finish(work: Slices[R]) -> R:
    """Run all of the work now; it must not wait for a completion."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: R = end.value
            return result


def sort_in_slices(names: Iterable[str]) -> Slices[Iterator[str]]:
    """Sort names in slices, and return an iterator that merges them."""
    rest = list(names)
    parts = []
    for start in range(0, len(rest), _SORTED_AT_ONCE):
        parts.append(sorted(rest[start : start + _SORTED_AT_ONCE]))
        yield
    return merge(*parts)
