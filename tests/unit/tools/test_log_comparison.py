"""The comparison of two logs: one changed record, missing batches, compaction, retention; and the common end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients.admin import EpochEnd, FetchedBatches
from ottla.clients.errors import OffsetOutOfRange
from ottla.common.failure import Failure
from ottla.records import encode_batch, iter_batches, patch
from ottla.tools.admin import log_comparison
from ottla.tools.admin.log_comparison import Comparison, Difference, LogSide
from ottla.tools.admin.mirror_verification import Bounds, Range, common_end

EPOCH = 3


class Batches:
    """A log of batches, of which each fetch returns two and a part of a third."""

    def __init__(self, *batches: bytearray) -> None:
        self.batches = list(batches)
        self.start = 0
        self.fetched = 0
        self.deletes: Callable[[], object] = lambda: None

    @property
    def end(self) -> int:
        return max((header.next_offset for each in self.batches for _, header in iter_batches(each)), default=0)

    def fetch(self, offset: int) -> FetchedBatches:
        self.fetched += 1
        if offset < self.start:
            raise OffsetOutOfRange("deleted")
        found = [each for each in self.batches for _, header in iter_batches(each) if header.next_offset > offset]
        data = b"".join(found[:2]) + b"".join(found[2:3])[:-1]
        self.deletes()
        return FetchedBatches(data, self.start, self.end)


def batch(offset: int, *values: bytes, epoch: int = EPOCH) -> bytearray:
    data = bytearray(encode_batch([(1_000 + i, b"k", value, []) for i, value in enumerate(values)]))
    patch(data, 0, offset, epoch)
    return data


def log(count: int = 8) -> Batches:
    return Batches(*(batch(3 * i, b"a%d" % i, b"b%d" % i, b"c%d" % i) for i in range(count)))


def compare(source: Batches, target: Batches, *, start: int = 0, compacted: bool = False) -> Comparison:
    sides = [LogSide(name, each.fetch, lambda each=each: each.start) for name, each in _named(source, target)]  # type: ignore[misc]
    found = Comparison(sides[0], sides[1], is_compacted=compacted)
    advanced: list[int] = []
    end = min(source.end, target.end)
    found.run(start, end, lambda offsets, _: advanced.append(offsets))
    assert sum(advanced) == end - start, "the progress ends at its total"
    return found


def _named(source: Batches, target: Batches) -> list[tuple[str, Batches]]:
    return [("source", source), ("target", target)]


def test_equal_logs_are_read_in_parts() -> None:
    source, target = log(), log()
    found = compare(source, target)
    assert (found.differences, found.differing) == ([], 0)
    assert found.size == sum(map(len, source.batches))
    assert source.fetched == target.fetched == 4


def test_one_changed_record_is_found_by_its_offset() -> None:
    source, target = log(), log()
    target.batches[5] = batch(15, b"a5", b"B5", b"c5")
    found = compare(source, target)
    assert found.differences == [Difference(16, 16, "the records differ")]


def test_one_changed_byte_is_found_in_its_batch() -> None:
    for position, text in (
        (15, "the leader epochs or producers differ; the records are equal"),
        (70, "the batch of the target is corrupt: its CRC is wrong"),
    ):
        source, target = log(), log()
        target.batches[4][position] ^= 1
        assert compare(source, target).differences == [Difference(12, 14, text)]


def test_diverged_ends_are_one_range() -> None:
    source, target = log(), log(5)
    target.batches += [batch(offset, b"x", epoch=EPOCH + 1) for offset in range(15, 24)]
    found = compare(source, target)
    assert (found.differences[0].first_offset, found.differences[-1].last_offset) == (15, 23)
    assert found.differing == 9


def test_missing_batch_is_a_difference_unless_the_topic_is_compacted() -> None:
    source, target = log(), log()
    del target.batches[2]
    assert compare(source, target).differences == [Difference(6, 8, "only the source has a batch there")]
    found = compare(source, target, compacted=True)
    assert (found.differences, found.compacted) == ([], 3)


def test_compacted_batch_must_have_equal_records() -> None:
    source, target = log(), log()
    target.batches[2] = batch(6, b"a2")
    found = compare(source, target, compacted=True)
    assert (found.differences, found.compacted) == ([], 2)
    target.batches[2] = batch(6, b"A2")
    found = compare(source, target, compacted=True)
    assert found.differences == [Difference(6, 6, "the records differ")]


def test_records_that_are_deleted_during_the_comparison_are_skipped_and_counted() -> None:
    source, target = log(), log()

    def delete() -> None:
        source.start = 12

    source.deletes = delete
    found = compare(source, target)
    assert (found.differences, found.deleted) == ([], 6)


def test_log_that_has_become_shorter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_comparison, "_RETRY_S", 0)
    source, target = log(), log()

    def truncate() -> None:
        del target.batches[2:]

    target.deletes = truncate
    with pytest.raises(Failure, match="target has no records from offset 6"):
        compare(source, target)


def test_compacted_end_of_a_log_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_comparison, "_RETRY_S", 0)
    side = LogSide("source", lambda _: FetchedBatches(b"", 0, 9), lambda: 0)
    assert list(side.batches(5, 9)) == []


def test_range_says_what_is_not_compared() -> None:
    assert Range.of(Bounds(2, 10, 0), Bounds(5, 9, 0)) == (
        5,
        9,
        ["the log of the target begins later, at offset 5", "1 offsets from 9 on are not copied yet"],
    )
    assert Range.of(Bounds(0, 10, 0), Bounds(0, 12, 0)).skipped == ["only the target has the 2 offsets from 10 on"]
    assert Range.of(None, Bounds(1, 5, 0)) == (1, 1, ["the source has no such partition"])
    assert Range.of(Bounds(9, 10, 0), Bounds(0, 4, 0))[:2] == (4, 4)


Epochs = list[tuple[int, int]]


def ends(epochs: Epochs, log_end: int) -> Callable[[int], EpochEnd]:
    """The answers of a log with these (epoch, start offset)."""

    def of(epoch: int) -> EpochEnd:
        below = [each for each in epochs if each[0] <= epoch]
        if not below:
            return EpochEnd(-1, -1)
        following = [start for each, start in epochs if each > below[-1][0]]
        return EpochEnd(below[-1][0], following[0] if following else log_end)

    return of


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        (([(0, 0)], 8), ([(0, 0), (100, 5)], 9), 5),
        (([(0, 0), (2, 4), (3, 6)], 8), ([(0, 0), (2, 4), (100, 5)], 9), 5),
        (([(0, 0), (3, 4)], 8), ([(0, 0), (2, 4), (100, 5)], 9), 4),
        (([(0, 0), (1, 2), (4, 3)], 8), ([(0, 0), (3, 2), (100, 5)], 9), 2),
        (([(5, 0)], 8), ([(100, 0)], 9), 0),
        (([(0, 0)], 3), ([(0, 0)], 9), 3),
    ],
)
def test_common_end_is_where_the_last_common_epoch_ends_first(
    ours: tuple[Epochs, int], theirs: tuple[Epochs, int], common: int
) -> None:
    assert common_end(ends(*ours), ends(*theirs), min(ours[0][-1][0], theirs[0][-1][0])) == common
