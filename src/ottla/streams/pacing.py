"""When the micro-batches of a query begin: not more often than its latency allows, unless enough records wait.

A micro-batch costs the same for one record as for thousands. So a query waits for records as long as the program
permits (`latency`), and has few micro-batches while records arrive slowly. While it is behind, its micro-batches follow
each other without a pause: one that takes longer than the latency is followed at once by the next one, which has all
records that arrived meanwhile. If `max_records` limits them, the source reports as many waiting records at once.

Event time needs no micro-batches of its own then: the next one with records also has the watermark of the previous one.

Without Spark: Spark's trigger and the source follow these figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_LATENCY: Final = "1500 ms"
"""Half of the records wait for half of it, and their micro-batch takes some tenths of a second: 1 s in the median."""
CLOCK_MS: Final = 1000
"""How often a processor looks at the clock, at most. By default, Spark would run its micro-batches without a pause."""
SHORTEST_POLL_MS: Final = 25
"""How often an idle query looks for records. Spark's default, 10 ms, takes several per cent of a core."""
LONGEST_POLL_MS: Final = 250
_POLLS: Final = 8
"""How often a query looks for records within its latency, if the number of waiting records decides."""


@dataclass(frozen=True)
class Pace:
    """When the micro-batches of a query begin."""

    interval_ms: int
    """The interval of Spark's trigger; with 0, the next micro-batch begins as soon as the source has records."""
    wait_ms: int
    """How long after the previous micro-batch the source reports no records, unless `max_records` of them wait."""
    poll_ms: int
    """How often Spark asks a source without records."""


def pace_of(latency_ms: int, *, is_limited: bool, has_clock: bool = False) -> Pace:
    """Return the pace of a query whose records may wait this long.

    `is_limited`: `max_records` limits its micro-batches. `has_clock`: a processor has timers or state by the clock.
    """
    poll_ms = SHORTEST_POLL_MS
    if is_limited:
        poll_ms = min(max(latency_ms // _POLLS, SHORTEST_POLL_MS), LONGEST_POLL_MS)
    # A record waits for the source, and then until Spark polls it.
    wait_ms = max(latency_ms - poll_ms, 0) if is_limited else 0
    interval_ms = 0 if is_limited else latency_ms
    return Pace(max(interval_ms, latency_ms, CLOCK_MS) if has_clock else interval_ms, wait_ms, poll_ms)
