"""Descriptors or memory run out: operations fail, no record is lost, and no log directory goes offline.

Each test counts the calls that need a descriptor and lets every single one of them fail in turn.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.shortage import ShortageError, SyncError, is_shortage
from ottla.log import Files, Log, LogConfig, LogManager
from ottla.log.open_files import OpenFiles
from ottla.log.storage import StorageError
from ottla.records import Buffer
from tests import deadlines
from tests.storage.helpers import TOPIC_ID, TP, ManualClock, append, batch, open_at, values

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=0)
SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]
T0 = TopicPartition("t", 0)


class ShortFiles(Files):
    """Fails `failures` times, from the `fail_at`-th call that needs a descriptor (or memory)."""

    def __init__(self, number: int = errno.EMFILE) -> None:
        self.number = number
        self.calls = 0
        self.fail_at = 1 << 30
        self.failures = 1 << 30

    def fail(self, at: int, failures: int = 1 << 30) -> None:
        self.calls, self.fail_at, self.failures = 0, at, failures

    def heal(self) -> None:
        self.fail(1 << 30)

    def _count(self) -> None:
        self.calls += 1
        if self.fail_at < self.calls <= self.fail_at + self.failures:
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        self._count()
        return super().open(path, create=create, truncate=truncate, read_only=read_only)

    def dup(self, fd: int) -> int:
        self._count()
        return super().dup(fd)

    def list(self, directory: str) -> list[str]:
        self._count()
        return super().list(directory)

    def fsync_directory(self, path: str) -> None:
        self._count()
        super().fsync_directory(path)

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        if self.number == errno.ENOMEM:
            self._count()
        super().pwrite(fd, data, position)

    def pread_large(self, fd: int, size: int, position: int) -> Buffer:
        if self.number == errno.ENOMEM:
            self._count()
        return super().pread_large(fd, size, position)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def every_failure(files: ShortFiles, operation: Callable[[], object]) -> Iterator[int]:
    """Let the first call fail, then the second and so on, until the operation succeeds."""
    for at in range(1000):
        files.fail(at, failures=1)
        try:
            operation()
        except ShortageError:
            files.heal()
            yield at
        else:
            files.heal()
            return
    pytest.fail("the operation never succeeds")


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_append_that_rolls_loses_and_doubles_nothing_wherever_it_fails(tmp_path: Path, number: int) -> None:
    files = ShortFiles(number)
    log = open_at(str(tmp_path), files, SMALL)
    written: list[bytes | None] = []

    def write() -> None:
        value = b"%04d" % len(written) + bytes(100)
        append(log, batch(value))
        written.append(value)

    refused = sum(1 for _ in range(40) for _ in every_failure(files, write))
    assert refused > 10
    assert log.log_directory.online
    assert values(log) == written
    log.flush()
    log.close()
    for clean in (True, False):
        again = open_at(str(tmp_path), config=SMALL, clean=clean)
        assert values(again) == written
        again.abandon()


@pytest.mark.parametrize("at", range(7))
def test_log_goes_on_in_its_segment_after_a_roll_that_failed(tmp_path: Path, at: int) -> None:
    files = ShortFiles()
    log = open_at(str(tmp_path), files, SMALL)
    written = [b"%03d" % number + bytes(200) for number in range(3)]
    for value in written:
        append(log, batch(value))
    before = open_descriptors()
    files.fail(at)
    with contextlib.suppress(ShortageError):
        append(log, batch(bytes(600)))
        pytest.fail("it does not fail here")
    files.heal()
    assert open_descriptors() == before
    written += [b"%03d" % number for number in range(30)]
    for value in written[3:]:
        append(log, batch(value))
    log.abandon()
    assert values(open_at(str(tmp_path), config=SMALL)) == written


def test_log_goes_on_after_a_long_shortage(tmp_path: Path) -> None:
    files = ShortFiles()
    log = open_at(str(tmp_path), files, SMALL)
    written: list[bytes | None] = []
    for number in range(200):
        files.fail(0) if 50 <= number < 100 else files.heal()
        value = b"%04d" % number + bytes(100)
        try:
            append(log, batch(value))
        except ShortageError:
            continue
        written.append(value)
    assert 150 <= len(written) < 200, "until a roll, an append needs no descriptor"
    assert values(log) == written
    log.flush()
    log.abandon()
    assert values(open_at(str(tmp_path), config=SMALL)) == written


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_flush_is_retried_wherever_it_fails(tmp_path: Path, number: int) -> None:
    files = ShortFiles(number)
    log = open_at(str(tmp_path), files, SMALL)
    for count in range(30):
        append(log, batch(b"%04d" % count + bytes(100)))
    before = open_descriptors()
    for _ in every_failure(files, log.flush):
        assert log.flushed_offset == 0
        assert open_descriptors() <= before
    assert log.flushed_offset == 30
    assert log.log_directory.online


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_read_is_retried_wherever_it_fails(tmp_path: Path, number: int) -> None:
    files = ShortFiles(number)
    log = open_at(str(tmp_path), files, SMALL, open_files=OpenFiles(2))
    expected: list[bytes | None] = []
    for count in range(60):
        expected.append(b"%04d" % count + bytes(100))
        append(log, batch(expected[-1] or b""))
    log.flush()
    found: list[bytes | None] = []
    for _ in every_failure(files, lambda: found.extend(values(log))):
        found.clear()
    assert found == expected
    for _ in every_failure(files, lambda: log.offset_for_timestamp(0, log.log_end_offset)):
        assert log.log_directory.online


def test_failed_fsync_is_not_treated_as_a_shortage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at(str(tmp_path))
    append(log, batch(b"a"))

    def fail(fd: int) -> None:
        raise OSError(errno.ENOMEM, "simulated")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(KafkaError) as caught:
        log.flush()
    assert not isinstance(caught.value, ShortageError)
    assert not log.log_directory.online
    assert not is_shortage(SyncError(errno.EMFILE, ""))


def manager_at(path: Path, files: Files) -> LogManager:
    manager = LogManager([str(path)], ManualClock(), SMALL, files=files)
    manager.load()
    return manager


@pytest.mark.parametrize("number", SHORTAGES, ids=errno.errorcode.get)
def test_partition_is_created_later_wherever_it_fails(tmp_path: Path, number: int) -> None:
    files = ShortFiles(number)
    manager = manager_at(tmp_path, files)
    before = open_descriptors()
    for _ in every_failure(files, lambda: manager.create(T0, TOPIC_ID)):
        assert manager.get(T0) is None
        assert open_descriptors() == before
    log = manager.create(T0, TOPIC_ID)
    append(log, batch(b"a"))
    assert manager.log_directories()[0].online
    manager.close()
    assert values(manager_at(tmp_path, Files()).create(T0, TOPIC_ID)) == [b"a"]


@pytest.mark.parametrize("at", range(9))
def test_new_partition_is_never_opened_beside_a_checkpoint_of_its_namesake(tmp_path: Path, at: int) -> None:
    files = ShortFiles()
    manager = manager_at(tmp_path, files)
    old = manager.create(T0, TOPIC_ID)
    for _ in range(5):
        append(old, batch(b"old"))
    old.high_watermark = 5
    old.delete_records_before(5)
    manager.checkpoint()
    manager.delete([T0])
    other = bytes(reversed(TOPIC_ID))
    files.fail(at, failures=1)
    with contextlib.suppress(ShortageError):
        manager.create(T0, other)
    files.heal()
    log = manager.create(T0, other)
    append(log, batch(b"new"))
    log.flush()
    manager.abandon()
    assert values(manager_at(tmp_path, Files()).create(T0, other)) == [b"new"]


def test_checkpoints_are_written_later(tmp_path: Path) -> None:
    files = ShortFiles()
    manager = manager_at(tmp_path, files)
    log = manager.create(T0, TOPIC_ID)
    append(log, batch(b"a"))
    log.flush()
    log.segments.cleaned_to = 1
    files.fail(0)
    manager.checkpoint_cleaned(log)
    manager.checkpoint()
    manager.checkpoint_high_watermarks()
    assert manager.log_directories()[0].online
    files.heal()
    manager.checkpoint_recovery_points()
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        assert (tmp_path / f"{name}-offset-checkpoint").exists(), name


def test_directory_of_a_deleted_partition_is_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, files = ManualClock(), ShortFiles()
    manager = LogManager([str(tmp_path)], clock, SMALL, files=files)
    manager.load()
    manager.create(T0, TOPIC_ID)
    manager.delete([T0])
    clock.now += 10 * 60_000

    def fail(path: str) -> None:
        raise OSError(errno.EMFILE, "simulated", path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_tree", fail)
        manager.remove_deleted(clock.now)
    assert list(tmp_path.glob("t-0.*-delete"))
    manager.remove_deleted(clock.now)
    assert not list(tmp_path.glob("t-0.*-delete"))
    assert manager.log_directories()[0].online


def test_start_without_descriptors_is_refused_and_the_next_start_loses_nothing(tmp_path: Path) -> None:
    manager = manager_at(tmp_path, Files())
    for number in range(3):
        append(manager.create(TopicPartition("t", number), TOPIC_ID), batch(b"%d" % number))
    manager.close()
    files = ShortFiles()
    refusals: list[str] = []
    for at in range(100):
        files.fail(at, failures=1)
        short = LogManager([str(tmp_path)], ManualClock(), SMALL, files=files)
        try:
            short.load()
        except StorageError as error:
            refusals.append(str(error))
            short.abandon()
        else:
            break
    assert len(refusals) > 3
    assert all("limit" in each for each in refusals)
    assert [values(short.create(TopicPartition("t", number), TOPIC_ID)) for number in range(3)] == [
        [b"0"],
        [b"1"],
        [b"2"],
    ]


def test_cached_descriptors_are_closed_before_anything_fails(tmp_path: Path) -> None:
    files = ShortFiles()
    open_files = OpenFiles()
    log = open_at(str(tmp_path), files, SMALL, open_files=open_files)
    for count in range(60):
        append(log, batch(b"%04d" % count + bytes(100)))
    log.flush()
    values(log)
    files.release_descriptor = open_files.release_descriptor
    limited(log, files, open_descriptors())
    assert log.log_directory.online


def limited(log: Log, files: Files, most: int) -> None:
    """Append and read under a real limit of open files, which is reached."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = values(log)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        for count in range(30):
            append(log, batch(b"more%04d" % count + bytes(100)))
        assert len(values(log)) == len(before) + 30
        log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_only_the_thread_that_reads_closes_cached_descriptors(tmp_path: Path) -> None:
    import threading

    open_files = OpenFiles()
    log = open_at(str(tmp_path), config=SMALL, open_files=open_files)
    for count in range(30):
        append(log, batch(b"%04d" % count + bytes(100)))
    log.flush()
    values(log)
    closed: list[bool] = []
    thread = threading.Thread(target=lambda: closed.append(open_files.release_descriptor()))
    thread.start()
    deadlines.join(thread, "a descriptor is released")
    assert closed == [False]
    assert open_files.release_descriptor()
    assert log.topic_partition == TP
