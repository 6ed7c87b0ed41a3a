"""Preallocated blocks beyond the end of a log: readers never see them, and unused ones are freed."""

import errno
import os
from pathlib import Path

import pytest

from ottla.log import Files, Log, segment_file
from tests.storage.helpers import append, batch, open_at, records

VALUE = os.urandom(10_000)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_file, "ALLOCATE_FROM", 50_000)
    monkeypatch.setattr(segment_file, "ALLOCATED_AHEAD", 1 << 20)


def the_file(log: Log) -> tuple[int, int]:
    """Length and bytes of blocks of the first segment."""
    found = Path(log.directory, f"{0:020d}.log").stat()
    return found.st_size, found.st_blocks * 512


def filled(path: Path, files: Files | None = None) -> Log:
    log = open_at(str(path), files)
    for _ in range(10):
        append(log, batch(VALUE))
    return log


def test_large_log_preallocates_blocks_beyond_its_length(tmp_path: Path) -> None:
    log = filled(tmp_path)
    length, blocks = the_file(log)
    assert length == log.size
    assert blocks > length + 800_000, "the file system of the temporary directory allocates nothing ahead"
    assert len(records(log)) == 10


def test_small_log_preallocates_nothing(tmp_path: Path) -> None:
    log = open_at(str(tmp_path))
    append(log, batch(VALUE))
    os.sync()
    assert the_file(log)[1] < 50_000


def test_unused_blocks_are_freed_when_the_segment_is_sealed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.roll()
    log.flush()
    length, blocks = the_file(log)
    assert length == 10 * len(batch(VALUE))
    assert blocks < length + 50_000


def test_unused_blocks_are_freed_by_a_clean_shutdown(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    length, blocks = the_file(log)
    assert blocks < length + 50_000


def test_a_log_whose_process_died_goes_on(tmp_path: Path) -> None:
    filled(tmp_path).abandon()
    log = open_at(str(tmp_path), recovery_point=0)
    assert len(records(log)) == 10
    append(log, batch(VALUE))
    assert the_file(log)[0] == log.size
    log.close()
    assert the_file(log)[1] < log.size + 50_000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_records_are_written_when_preallocation_fails(tmp_path: Path, number: int) -> None:
    class Unwilling(Files):
        asked = 0

        def allocate(self, fd: int, position: int, size: int) -> None:
            self.asked += 1
            raise OSError(number, os.strerror(number))

    files = Unwilling()
    log = filled(tmp_path, files)
    assert files.asked == 1, "it retries forever"
    assert len(records(log)) == 10
    log.roll()
    append(log, batch(VALUE))
    assert len(records(log)) == 11
