"""Whether a figure of a process grows: its slope after the warm-up, by a method that single peaks do not change.

The samples after the warm-up are divided into `BINS` equal times. The slope is the median of the slopes between all
pairs of the bins' medians (Theil and Sen). The cleaner, retention and garbage collection make saw teeth, of which the
median of a bin takes the middle.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

BINS = 24
WARM_UP = 1 / 3
"""The share of a run before which a slope says nothing: caches fill, and no retention has begun."""
MIB = 1 << 20
Point = tuple[float, float]


class Allowance(NamedTuple):
    """So much a figure may grow in an hour, in its unit or as a share of its level, whichever is more."""

    amount: float
    share: float = 0.0


ALLOWED: Mapping[str, Allowance] = {
    "memory": Allowance(4 * MIB, 0.05),
    "descriptors": Allowance(4),
    "threads": Allowance(2, 0.05),  # the pools of a JVM have 200 to 260
    "disk": Allowance(4 * MIB, 0.1),
    "p50_ms": Allowance(5, 0.25),
    "p99_ms": Allowance(25, 0.5),
}


class Growth(NamedTuple):
    """The levels of a figure at the begin and the end of the time after the warm-up, and its slope."""

    first: float
    last: float
    per_hour: float
    grows: bool


def growth(figure: str, points: Sequence[Point], end_s: float) -> Growth | None:
    """Judge the (second, value) points of a run that ended at `end_s`; None if there are too few."""
    medians = _medians([(at_s, value) for at_s, value in points if at_s >= end_s * WARM_UP], end_s)
    if len(medians) < 3:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(medians, 2)]
    per_hour = 3600 * statistics.median(slopes)
    level = statistics.median(value for _, value in medians)
    allowed = ALLOWED[figure]
    return Growth(medians[0][1], medians[-1][1], per_hour, per_hour > max(allowed.amount, allowed.share * level))


def _medians(points: Sequence[Point], end_s: float) -> list[Point]:
    begin_s = end_s * WARM_UP
    bins: dict[int, list[Point]] = {}
    for at_s, value in points:
        bins.setdefault(min(BINS - 1, int((at_s - begin_s) / (end_s - begin_s) * BINS)), []).append((at_s, value))
    return [
        (statistics.median(at_s for at_s, _ in each), statistics.median(value for _, value in each))
        for _, each in sorted(bins.items())
    ]
