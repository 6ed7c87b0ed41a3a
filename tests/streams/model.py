"""An independent model of operations on streams: what each writes after each micro-batch. Without Spark.

A step is the events of one micro-batch. The watermark is the latest event time of all previous steps minus `late`;
a step is judged by the watermark before it, and closes what ends at or before the watermark after it. Times are whole
seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True)
class Event:
    """A record of a stream."""

    id: str
    key: str
    at: int
    amount: int
    side: str


class Total(NamedTuple):
    """The number of events and the sum of their amounts."""

    count: int = 0
    amount: int = 0

    def plus(self, other: Total) -> Total:
        return Total(self.count + other.count, self.amount + other.amount)


Step: TypeAlias = Sequence[Event]
Windows: TypeAlias = dict[tuple[str, int], Total]
Sessions: TypeAlias = dict[tuple[str, int, int], Total]
NEVER = -(10**12)


def watermarks(steps: Iterable[Step], late: int) -> Iterator[tuple[Step, int, int]]:
    """Yield each step with the watermark before and after it."""
    before = NEVER
    for step in steps:
        after = max([before, *(event.at - late for event in step)])
        yield step, before, after
        before = after


def windows(steps: Iterable[Step], late: int, size: int, slide: int) -> list[Windows]:
    """Return the windows that each step closes, by key and start."""
    is_open: Windows = defaultdict(Total)
    written = []
    for step, before, after in watermarks(steps, late):
        for event in step:
            first = event.at - event.at % slide
            for start in range(first, event.at - size, -slide):
                if start + size > before:
                    place = event.key, start
                    is_open[place] = is_open[place].plus(Total(1, event.amount))
        closed = {place: total for place, total in is_open.items() if place[1] + size <= after}
        for place in closed:
            del is_open[place]
        written.append(closed)
    return written


def sessions(steps: Iterable[Step], late: int, gap: int) -> list[Sessions]:
    """Return the sessions that each step closes, by key, start and end. Sessions that touch are one."""
    is_open: Sessions = {}
    written = []
    for step, before, after in watermarks(steps, late):
        pieces = list(is_open.items())
        pieces += [
            ((event.key, event.at, event.at + gap), Total(1, event.amount)) for event in step if event.at + gap > before
        ]
        is_open = {}
        for (key, start, end), total in sorted(pieces):
            last = next(reversed(is_open), None)
            if last is not None and last[0] == key and start <= last[2]:
                total = is_open.pop(last).plus(total)
                start, end = last[1], max(last[2], end)
            is_open[key, start, end] = total
        written.append({place: total for place, total in is_open.items() if place[2] <= after})
        is_open = {place: total for place, total in is_open.items() if place[2] > after}
    return written


def distinct(steps: Iterable[Step], late: int) -> list[set[str]]:
    """Return the ids that each step writes: those that are not late and were not seen within `late`."""
    seen: dict[str, int] = {}
    written = []
    for step, before, after in watermarks(steps, late):
        new = {event.id: event.at for event in step if event.at > before and event.id not in seen}
        seen = {name: at for name, at in (seen | new).items() if at + late > after}
        written.append(set(new))
    return written


def pairs(steps: Iterable[Step], late: int, span: int) -> list[list[tuple[str, str]]]:
    """Return the pairs of left and right ids with one key that each step completes.

    The right event is at most `span` later than the left one. Late events have no pairs.
    """
    lefts: list[Event] = []
    rights: list[Event] = []
    written = []
    for step, before, _ in watermarks(steps, late):
        there = {id(event) for event in (*lefts, *rights)}
        lefts += [event for event in step if event.side == "left" and event.at > before]
        rights += [event for event in step if event.side == "right" and event.at > before]
        written.append(
            sorted(
                (left.id, right.id)
                for left in lefts
                for right in rights
                if left.key == right.key
                and left.at <= right.at <= left.at + span
                and not (id(left) in there and id(right) in there)
            )
        )
    return written


def totals(steps: Iterable[Step]) -> list[dict[str, Total]]:
    """Return the totals of the keys that each step changes."""
    known: dict[str, Total] = defaultdict(Total)
    written = []
    for step in steps:
        for event in step:
            known[event.key] = known[event.key].plus(Total(1, event.amount))
        written.append({event.key: known[event.key] for event in step})
    return written
