"""States of the records of a share partition, and ranges of offsets with one state: what the coordinator stores.

`combine` merges newer ranges into older ones. For an offset in both, the range with the higher delivery count counts,
then the one with the higher state, so that the result does not depend on the order of writes. This is Kafka's rule.
"""

from __future__ import annotations

import enum
import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


class RecordState(enum.IntEnum):
    """The state of a record for one share group. The stored records have the same numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})

# Moves of a record. A record below the log start offset, or of an aborted transaction, may be archived in any state.
MOVES: Mapping[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED}),
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}


class StateBatch(NamedTuple):
    """The state of the offsets from `first_offset` to `last_offset`, both included."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def rank(self) -> tuple[int, int]:
        """Of two ranges with the same offset, the one with the higher rank counts."""
        return self.delivery_count, self.delivery_state


def combine(older: Sequence[StateBatch], newer: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Merge both, without offsets below `start_offset` (-1: unknown); sorted, without overlaps, neighbours merged.

    `older` is a result of this function. Cost: O(n log n) for the n ranges of `newer` and the ranges of `older` between
    them; the others are only copied.
    """
    added = sorted(batch for batch in _pruned(newer, start_offset) if batch.first_offset <= batch.last_offset)
    kept = older[bisect_left(older, start_offset, key=_LAST) :]
    kept = (*_pruned(kept[:1], start_offset), *kept[1:])
    if not added:
        return kept
    # A neighbour of an added range may merge with it.
    start = bisect_left(kept, added[0].first_offset - 1, key=_LAST)
    end = bisect_right(kept, max(batch.last_offset for batch in added) + 1, lo=start, key=_FIRST)
    return (*kept[:start], *_merged([*kept[start:end], *added]), *kept[end:])


def _merged(queue: list[StateBatch]) -> list[StateBatch]:
    heapq.heapify(queue)
    result: list[StateBatch] = []
    while queue:
        batch = heapq.heappop(queue)
        if result and result[-1].last_offset >= batch.first_offset:
            for piece in _without_overlap(result.pop(), batch):
                heapq.heappush(queue, piece)
        elif result and result[-1].last_offset + 1 == batch.first_offset and result[-1].rank == batch.rank:
            result[-1] = result[-1]._replace(last_offset=batch.last_offset)
        else:
            result.append(batch)
    return result


def _pruned(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    for batch in batches:
        if batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _without_overlap(left: StateBatch, right: StateBatch) -> list[StateBatch]:
    """Cut two overlapping ranges, `left` first, into ranges that do not overlap. They cover the same offsets."""
    winner, loser = (left, right) if left.rank > right.rank else (right, left)
    pieces = [winner]
    if loser.first_offset < winner.first_offset:
        pieces.append(loser._replace(last_offset=winner.first_offset - 1))
    if loser.last_offset > winner.last_offset:
        pieces.append(loser._replace(first_offset=winner.last_offset + 1))
    return pieces
