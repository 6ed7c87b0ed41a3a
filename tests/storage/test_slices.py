"""Parts of segments that are read only when they are sent, also after their segment was closed or deleted."""

import errno
import gc
import os
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Files, Log
from ottla.log.open_files import OpenFiles
from ottla.log.slices import FileSlice
from tests.storage.helpers import START, append, batch, open_at

VALUE = os.urandom(10_000)


class CountingFiles(Files):
    """Tracks open descriptors, and fails on demand."""

    def __init__(self) -> None:
        self.descriptors: set[int] = set()
        self.broken = False

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        fd = super().open(path, create=create, truncate=truncate, read_only=read_only)
        self.descriptors.add(fd)
        return fd

    def dup(self, fd: int) -> int:
        copy = super().dup(fd)
        self.descriptors.add(copy)
        return copy

    def close(self, fd: int) -> None:
        self.descriptors.remove(fd)
        super().close(fd)

    def pread_large(self, fd: int, size: int, position: int) -> bytes | bytearray | memoryview:
        if self.broken:
            raise OSError(errno.EIO, "simulated")
        assert fd in self.descriptors
        return super().pread_large(fd, size, position)


@pytest.fixture
def files() -> CountingFiles:
    return CountingFiles()


def filled(path: Path, files: Files, segments: int = 1, **options: object) -> tuple[Log, bytes]:
    """Return a log of full segments and the bytes of the first one."""
    log = open_at(str(path), files, **options)  # type: ignore[arg-type]
    for _ in range(segments):
        for _ in range(10):
            append(log, batch(VALUE))
        log.roll()
    log.high_watermark = log.log_end_offset
    return log, Path(log.directory, f"{0:020d}.log").read_bytes()


def slice_of(log: Log, offset: int = 0) -> FileSlice:
    found = log.look_up(offset, 1 << 20, log.log_end_offset)
    assert isinstance(found, FileSlice)
    return found


def taken(found: FileSlice) -> bytes:
    data = b""
    while found:
        data += found.take(30_000)
    return data


def test_large_result_is_read_in_pieces_and_small_result_at_once(tmp_path: Path, files: CountingFiles) -> None:
    log, content = filled(tmp_path, files)
    found = slice_of(log)
    assert len(found) == len(content)
    assert taken(found) == content
    assert log.read(0, 1 << 20, log.log_end_offset) == content
    assert not isinstance(log.look_up(0, 30_000, log.log_end_offset), FileSlice)


def test_unchecked_batches_are_read_and_checked_first(tmp_path: Path, files: CountingFiles) -> None:
    log, content = filled(tmp_path, files)
    log.close()
    again = open_at(str(tmp_path), files, clean=True, recovery_point=log.log_end_offset)
    assert again.look_up(0, 1 << 20, again.log_end_offset) == content
    assert taken(slice_of(again)) == content


@pytest.mark.parametrize("fate", ["closed", "deleted", "crowded out"])
def test_slice_is_readable_after_its_segment_was_closed_or_deleted(
    tmp_path: Path, files: CountingFiles, fate: str
) -> None:
    log, content = filled(tmp_path, files, segments=4, open_files=OpenFiles(2))
    slices = [slice_of(log), slice_of(log)]
    first = bytes(slices[0].take(30_000))
    if fate == "closed":
        log.close()
    elif fate == "deleted":
        log.delete_records_before(10)
        log.delete_old_segments(START)
        for path in log.segments.take_due_deletions(START + log.config.file_delete_delay_ms):
            files.unlink(path)
        assert not Path(log.directory, f"{0:020d}.log").exists()
    else:
        for offset in (10, 20, 30):
            assert log.read(offset, 1 << 20, log.log_end_offset)
    assert first + taken(slices[0]) == content
    assert taken(slices[1]) == content


def test_descriptor_is_closed_with_its_last_slice(tmp_path: Path, files: CountingFiles) -> None:
    log, content = filled(tmp_path, files)
    slices = [slice_of(log), slice_of(log)]
    log.close()
    assert len(files.descriptors) == 1
    del slices[0]
    gc.collect()
    assert taken(slices[0]) == content
    slices.clear()
    gc.collect()
    assert not files.descriptors


def test_a_disk_that_fails_while_it_is_sent_is_offline(tmp_path: Path, files: CountingFiles) -> None:
    log, _ = filled(tmp_path, files)
    found = slice_of(log)
    files.broken = True
    with pytest.raises(KafkaError) as info:
        found.take(1000)
    assert info.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.log_directory.online


def test_slice_of_a_truncated_file_raises(tmp_path: Path, files: CountingFiles) -> None:
    log, _ = filled(tmp_path, files)
    found = slice_of(log)
    os.truncate(Path(log.directory, f"{0:020d}.log"), 50_000)
    with pytest.raises(KafkaError, match="shorter"):
        taken(found)
