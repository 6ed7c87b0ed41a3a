"""Merging the stored states of a share partition."""

from __future__ import annotations

import itertools
import random

from ottla.coordinators.share.state_batches import StateBatch, combine


def by_offset(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    states: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            states[offset] = max(states.get(offset, (-1, -1)), batch.rank)
    return states


def test_higher_delivery_count_wins_and_then_the_higher_state() -> None:
    assert combine([StateBatch(0, 9, 2, 1)], [StateBatch(4, 5, 0, 2)], -1) == (
        StateBatch(0, 3, 2, 1),
        StateBatch(4, 5, 0, 2),
        StateBatch(6, 9, 2, 1),
    )
    assert combine([StateBatch(0, 9, 2, 1)], [StateBatch(4, 5, 0, 1)], -1) == (StateBatch(0, 9, 2, 1),)


def test_offsets_below_the_start_are_dropped_and_neighbours_merged() -> None:
    older = [StateBatch(0, 4, 0, 1), StateBatch(5, 9, 2, 1)]
    assert combine(older, [StateBatch(10, 12, 2, 1), StateBatch(20, 20, 2, 1)], 7) == (
        StateBatch(7, 12, 2, 1),
        StateBatch(20, 20, 2, 1),
    )


def test_result_is_sorted_minimal_and_equal_offset_by_offset() -> None:
    source = random.Random(3)
    for _ in range(300):
        batches = [
            StateBatch(first, first + source.randrange(12), source.choice((0, 2, 4)), source.randrange(1, 4))
            for first in (source.randrange(60) for _ in range(source.randrange(12)))
        ]
        start = source.choice((-1, 0, 20))
        cut = source.randrange(len(batches) + 1)
        combined = combine(combine([], batches[:cut], start), batches[cut:], start)
        assert by_offset(list(combined), start) == by_offset(batches, start)
        for left, right in itertools.pairwise(combined):
            assert left.last_offset < right.first_offset
            assert left.rank != right.rank or left.last_offset + 1 < right.first_offset
