"""The redriven offsets of a partition against a set of integers, and their text."""

from __future__ import annotations

import random

import pytest

from ottla.tools.redriven_offsets import MOST_BYTES, NotARedrive, RedrivenOffsets, TooManyRanges


@pytest.mark.parametrize("seed", range(200))
def test_offsets_equal_a_set_and_survive_their_text(seed: int) -> None:
    draw = random.Random(seed)
    position = draw.randrange(5)
    offsets, expected = RedrivenOffsets(position), set(range(position))
    for _ in range(draw.randrange(30)):
        start = draw.randrange(60)
        end = start + draw.randrange(6)
        offsets.add(start, end)
        expected |= set(range(start, end))
        assert {offset for offset in range(80) if offset in offsets} == expected
    assert offsets.position == next(offset for offset in range(80) if offset not in expected)
    again = RedrivenOffsets(offsets.position, offsets.metadata())
    assert (again.position, again.ranges) == (offsets.position, offsets.ranges)


def test_large_offsets_survive_their_text() -> None:
    offsets = RedrivenOffsets(2**62)
    offsets.add(2**62 + 2**40, 2**62 + 2**41)
    assert RedrivenOffsets(2**62, offsets.metadata()).ranges == offsets.ranges


def test_metadata_that_a_broker_would_refuse_is_not_written() -> None:
    draw = random.Random(7)
    offsets = RedrivenOffsets(0)
    for offset in range(1, 10_000):
        if draw.random() < 0.3:
            offsets.add(offset, offset + 1)
    assert len(offsets.ranges) > 2000
    assert 1000 < len(offsets.metadata()) <= MOST_BYTES
    for offset in range(10_000, 60_000):
        if draw.random() < 0.3:
            offsets.add(offset, offset + 1)
    with pytest.raises(TooManyRanges, match="ranges"):
        offsets.metadata()


@pytest.mark.parametrize("text", ["x", "ottla.redrive:", "ottla.redrive:\x00", "ottla.redrive:c$@", "5:ottla.redrive"])
def test_metadata_of_other_programs_is_refused(text: str) -> None:
    with pytest.raises(NotARedrive):
        RedrivenOffsets(3, text)
