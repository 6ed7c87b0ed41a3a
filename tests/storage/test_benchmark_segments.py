"""Benchmarks write logs without a broker: a broker would have written the same bytes."""

from pathlib import Path

from benchmarks import segments

from ottla.log import Log
from ottla.records import check_crc, iter_batches
from tests.storage.helpers import TP, open_at


def made(tmp_path: Path) -> Path:
    directory = tmp_path / str(TP)
    directory.mkdir()
    return directory


def read_at(log: Log, offset: int) -> int:
    """Check the batch that a fetch of `offset` returns first, and return its base offset."""
    data = log.read(offset, 1, log.log_end_offset)
    ((position, header),) = iter_batches(data)
    assert check_crc(data, position, header.size)
    return header.base_offset


def test_a_filled_log_is_recovered_whole(tmp_path: Path) -> None:
    batches = segments.fill([made(tmp_path)], 100_000, 100, 3)
    log = open_at(str(tmp_path), clean=False)
    assert log.log_end_offset == 3 * batches
    assert log.size > 99_000
    assert read_at(log, 7) == 6


def test_a_sparse_log_holds_a_gigabyte_and_takes_a_few_megabytes(tmp_path: Path) -> None:
    directory = made(tmp_path)
    end = segments.sparse(directory, 2)
    log = open_at(str(tmp_path), clean=True)
    assert (log.log_end_offset, log.size > 2_000_000_000) == (end, True)
    assert sum(path.stat().st_blocks for path in directory.iterdir()) * 512 < 40_000_000
    assert [read_at(log, offset) for offset in (0, 999, 1000, 1500, end - 1)] == [0, 999, 1000, 1500, end - 1]


def test_many_segments_are_found_by_offset_and_by_timestamp(tmp_path: Path) -> None:
    start, end = segments.many(made(tmp_path), 150)
    log = open_at(str(tmp_path), clean=True)
    assert len(log.segments) == log.log_end_offset == end
    assert [read_at(log, offset) for offset in (0, 77, 149)] == [0, 77, 149]
    assert log.offset_for_timestamp(start + 77, end) == (start + 77, 77, 0)
