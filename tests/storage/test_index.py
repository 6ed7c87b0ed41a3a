"""Index files by themselves: an index in memory and its sealed file answer alike, and a corrupt file is detected."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import Files
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.txn_index import AbortedTransaction, TxnIndex

BASE = 1_000
Pairs = list[tuple[int, int]]


def rising(most: int) -> st.SearchStrategy[Pairs]:
    """Keys and values that both rise, relative to the base."""
    steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5_000)), max_size=most)
    return steps.map(
        lambda found: list(zip(accumulate(a for a, _ in found), accumulate(b for _, b in found), strict=True))
    )


def offset_index(path: str, pairs: Pairs) -> OffsetIndex:
    index = OffsetIndex(Files(), path, BASE)
    index.start(fresh=True)
    for offset, position in pairs:
        index.append(BASE + offset, position)
    return index


def time_index(path: str, pairs: Pairs) -> TimeIndex:
    index = TimeIndex(Files(), path, BASE)
    index.start(fresh=True)
    for offset, timestamp in pairs:
        index.maybe_append(timestamp, BASE + offset)
    return index


def floor(pairs: Pairs, wanted: int, field: int) -> tuple[int, int] | None:
    """The last pair whose field is not above `wanted`."""
    at = bisect_right([pair[field] for pair in pairs], wanted)
    return pairs[at - 1] if at else None


# More entries than a block of a read (512) has, and more than a piece of a write.
MANY: Pairs = [(3 * i, 100 * i) for i in range(1, 1_400)]


def check_offsets(index: OffsetIndex, pairs: Pairs, wanted: list[int]) -> None:
    for each in wanted:
        found = floor(pairs, each, 0)
        assert index.lookup(BASE + each) == (found[1] if found else 0)
        found = floor(pairs, each, 1)
        assert index.floor_position(each) == (found[1] if found else 0)
    assert index.entries == len(pairs)
    assert index.last() == ((BASE + pairs[-1][0], pairs[-1][1]) if pairs else (BASE, 0))


def check_times(index: TimeIndex, pairs: Pairs, wanted: list[int]) -> None:
    for each in wanted:
        found = floor(pairs, each, 1)
        assert index.lookup(each) == ((found[1], BASE + found[0]) if found else (-1, BASE))
    assert index.entries == len(pairs)
    assert index.last() == ((pairs[-1][1], BASE + pairs[-1][0]) if pairs else (-1, BASE))


@settings(max_examples=25)
@given(rising(20), st.lists(st.integers(0, 6_000), max_size=8), st.integers(0, 600))
def test_offset_index_in_memory_sealed_and_loaded_is_the_model(pairs: Pairs, wanted: list[int], cut: int) -> None:
    with TemporaryDirectory() as directory:
        index = offset_index(f"{directory}/x.index", pairs)
        check_offsets(index, pairs, wanted)
        index.seal()
        check_offsets(index, pairs, wanted)
        index.load()
        index.truncate_to(BASE + cut)
        remaining = [pair for pair in pairs if pair[0] < cut]
        check_offsets(index, remaining, wanted)
        index.seal()
        check_offsets(index, remaining, wanted)


@settings(max_examples=25)
@given(rising(20), st.lists(st.integers(-1, 60_000), max_size=8), st.integers(0, 600))
def test_time_index_in_memory_sealed_and_loaded_is_the_model(pairs: Pairs, wanted: list[int], cut: int) -> None:
    with TemporaryDirectory() as directory:
        index = time_index(f"{directory}/x.timeindex", pairs)
        check_times(index, pairs, wanted)
        index.seal()
        check_times(index, pairs, wanted)
        index.load()
        index.truncate_to(BASE + cut)
        remaining = [pair for pair in pairs if pair[0] < cut]
        check_times(index, remaining, wanted)
        index.seal()
        check_times(index, remaining, wanted)


def test_large_indices_answer_alike_at_the_edges_of_blocks(tmp_path: Path) -> None:
    wanted = [0, 1, 3 * 341, 3 * 341 - 1, 3 * 512, 3 * 512 + 1, 3 * 1_399, 10**6]
    offsets = offset_index(f"{tmp_path}/x.index", MANY)
    times = time_index(f"{tmp_path}/x.timeindex", MANY)
    for _ in range(2):
        check_offsets(offsets, MANY, wanted)
        check_times(times, MANY, [100 * each // 3 for each in wanted])
        offsets.seal()
        times.seal()


def test_zeros_of_a_preallocated_file_are_no_entries(tmp_path: Path) -> None:
    for pairs in (MANY[:1], MANY[:700]):
        offsets = offset_index(f"{tmp_path}/x.index", pairs)
        times = time_index(f"{tmp_path}/x.timeindex", pairs)
        offsets.seal()
        times.seal()
        for index in (offsets, times):
            with Path(index.path).open("ab") as file:
                file.write(bytes(12 * 900))
        wanted = [0, 5, 2_000, 80_000]
        check_offsets(offsets, pairs, wanted)
        check_times(times, pairs, wanted)
        # An index that is appended to again has them cut off, so that no entry follows zeros.
        offsets.load()
        assert Path(offsets.path).stat().st_size == 8 * len(pairs)
        offsets.append(BASE + 9_000, 900_000)
        offsets.seal()
        check_offsets(offsets, [*pairs, (9_000, 900_000)], wanted)


def test_entry_for_the_first_record_may_be_zero(tmp_path: Path) -> None:
    index = offset_index(f"{tmp_path}/x.index", [(0, 0)])
    index.seal()
    assert index.entries == 1
    index.load()
    assert index.entries == 1


def test_time_index_ignores_timestamps_that_do_not_rise(tmp_path: Path) -> None:
    index = time_index(f"{tmp_path}/x.timeindex", [(1, 100), (2, 100), (3, 99), (4, 101), (5, -1)])
    check_times(index, [(1, 100), (4, 101)], [99, 100, 101])


@pytest.mark.parametrize(
    ("content", "look"),
    [
        (pack(">ii", 5, 50) + pack(">ii", -6, 60), lambda index: index.last()),
        (pack(">ii", 5, 50) + pack(">ii", 6, -60), lambda index: index.lookup(BASE + 9)),
        (pack(">iiii", 5, 50, 4, 60), lambda index: index.load()),
        (pack(">iiii", 5, 50, 6, 50), lambda index: index.load()),
        (None, lambda index: index.lookup(BASE)),
        (None, lambda index: index.entries),
    ],
    ids=["key", "value", "keys fall", "values repeat", "missing", "missing, counted"],
)
def test_corrupt_or_missing_index_is_detected(
    tmp_path: Path, content: bytes | None, look: Callable[[OffsetIndex], object]
) -> None:
    path = tmp_path / "x.index"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorruptIndexError, match=r"x\.index"):
        look(OffsetIndex(Files(), str(path), BASE))


@pytest.mark.parametrize("lost", [0, 8, 20])
def test_entries_that_were_lost_from_the_file_are_written_again(tmp_path: Path, lost: int) -> None:
    index = offset_index(f"{tmp_path}/x.index", MANY[:10])
    index.write_pending()
    with Path(index.path).open("r+b") as file:
        file.truncate(80 - lost)
    index.append(BASE + 5_000, 500_000)
    index.seal()
    check_offsets(index, [*MANY[:10], (5_000, 500_000)], [0, 10, 5_000])


# -- aborted transactions ----------------------------------------------------------------------------------------------

ABORTED = [AbortedTransaction(7, 10, 19, 12), AbortedTransaction(8, 12, 25, 26), AbortedTransaction(7, 30, 31, 32)]


def txn_index(path: Path, entries: list[AbortedTransaction]) -> TxnIndex:
    index = TxnIndex(Files(), str(path))
    for each in entries:
        index.append(each)
    return index


def test_aborted_transactions_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    assert TxnIndex(Files(), str(path)).all() == []
    assert not path.exists()
    txn_index(path, ABORTED)
    assert TxnIndex(Files(), str(path)).all() == ABORTED
    assert path.stat().st_size == 34 * len(ABORTED)


@pytest.mark.parametrize(("offset", "count"), [(0, 0), (19, 0), (20, 1), (25, 1), (26, 2), (32, 3)])
def test_truncation_removes_transactions_by_their_marker(tmp_path: Path, offset: int, count: int) -> None:
    path = tmp_path / "x.txnindex"
    index = txn_index(path, ABORTED)
    index.truncate_to(offset)
    assert index.all() == ABORTED[:count]
    assert path.exists() is bool(count)
    assert TxnIndex(Files(), str(path)).all() == ABORTED[:count]
    # Later aborts follow the remaining entries.
    index.append(ABORTED[2])
    assert TxnIndex(Files(), str(path)).all() == [*ABORTED[:count], ABORTED[2]]


def test_deleted_file_of_aborted_transactions_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = txn_index(path, ABORTED)
    path.unlink()
    index.restore()
    assert TxnIndex(Files(), str(path)).all() == ABORTED
    path.write_bytes(b"")
    index.append(AbortedTransaction(9, 40, 41, 42))
    assert TxnIndex(Files(), str(path)).all() == [*ABORTED, AbortedTransaction(9, 40, 41, 42)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bytes(33), "has 33 bytes"),
        (pack(">hqqqq", 1, 7, 10, 19, 12), "impossible entry"),
        (pack(">hqqqq", 0, 7, 20, 19, 12), "impossible entry"),
        (None, "is missing"),
    ],
    ids=["size", "version", "offsets", "missing"],
)
def test_corrupt_aborted_transactions_are_detected(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "x.txnindex"
    index = TxnIndex(Files(), str(path))
    index.is_expected = True
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorruptIndexError, match=problem):
        index.all()
