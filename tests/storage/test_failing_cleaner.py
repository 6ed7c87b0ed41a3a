"""The disk is full or fails while a log is compacted: the log does not change, and is compacted later.

An error in the worker process costs one attempt. An error in the broker while it swaps the files takes the directory
offline, as in an append. In each case the newest record of each key exists, at its offset.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.log.compaction import CleanJob, CleanResult, clean
from tests.storage.helpers import START, append, batch
from tests.storage.test_cleaner import COMPACT, House, contents
from tests.storage.test_failing_disk import FailingFiles

LEFT_ALONE_MS = 600_000


class Tried:
    """A job that is done at once in this process and reports a failure as the worker process does."""

    def __init__(self, job: CleanJob, files: FailingFiles) -> None:
        self.outcome: CleanResult | str
        try:
            self.outcome = clean(job, files)
        except (OSError, KafkaError) as error:
            self.outcome = str(error)

    def poll(self) -> CleanResult | str:
        return self.outcome

    def stop(self) -> None:
        raise AssertionError("never under way")


def filled(home: Path) -> tuple[House, FailingFiles]:
    files = FailingFiles()
    house = House(str(home), files)
    house.cleaner._start_work = lambda job: Tried(job, files)
    for i in range(40):
        house.put(b"k%d" % (i % 4), b"%d" % i)
    house.log.roll(START)
    house.log.flush()
    return house, files


def newest(house: House) -> list[tuple[int, bytes | None, bytes | None]]:
    found = {key: (offset, key, value) for offset, key, value in contents(house.log)}
    return sorted(found.values())


EXPECTED = [(i, b"k%d" % (i % 4), b"%d" % i) for i in range(36, 40)]
WORKER = {
    "full while writing": (".log.cleaned", {"write": errno.ENOSPC}),
    "full while creating": (".cleaned", {"create": errno.ENOSPC}),
    "full while writing an index": ("index.cleaned", {"write": errno.ENOSPC}),
    "broken at sync": (".cleaned", {"sync": errno.EIO}),
    "broken at sync of the directory": ("t-0", {"sync": errno.EIO}),
    "broken at reading": (".log", {"read": errno.EIO}),
}


@pytest.mark.parametrize("fault", WORKER)
def test_failed_worker_costs_one_attempt(tmp_path: Path, fault: str) -> None:
    house, files = filled(tmp_path)
    suffix, faults = WORKER[fault]
    start = house.cleaner._start_work

    def only_there(job: CleanJob) -> object:
        """Only the worker's disk fails; the broker's works."""
        files.fail(tmp_path, suffix, **faults)
        try:
            return start(job)
        finally:
            files.heal()

    house.cleaner._start_work = only_there  # type: ignore[assignment]
    assert house.cleaner.step(house.clock.now)
    assert not house.cleaner.step(house.clock.now), "it failed"
    assert house.log.log_directory.online
    assert not list(tmp_path.glob("t-0/*.cleaned"))
    assert len(contents(house.log)) == 40, "as it was"
    assert append(house.log, batch(b"more", key=b"other")).first_offset == 40
    assert not house.cleaner.step(house.clock.now), "left alone for a while"
    house.cleaner._start_work = start
    house.clock.now += LEFT_ALONE_MS
    assert house.cleaner.step(house.clock.now)
    assert house.cleaner.step(house.clock.now)
    assert contents(house.log)[:4] == EXPECTED


SWAP = {
    "broken at renaming to .swap": (".swap", {"rename": errno.EIO}),
    "broken at renaming what is replaced": (".deleted", {"rename": errno.EIO}),
    "broken at the last name": ("0.log", {"rename": errno.EIO}),
    "full at the checkpoint": ("cleaner-offset-checkpoint.tmp", {"write": errno.ENOSPC}),
}


@pytest.mark.parametrize("fault", SWAP)
def test_failed_swap_is_completed_or_undone_by_the_next_start(tmp_path: Path, fault: str) -> None:
    house, files = filled(tmp_path)
    house.log.flush()
    suffix, faults = SWAP[fault]
    assert house.cleaner.step(house.clock.now)
    files.fail(tmp_path, suffix, **faults)
    assert not house.cleaner.step(house.clock.now)
    assert not house.log.log_directory.online
    house.manager.abandon()
    files.heal()
    again = House(str(tmp_path), files, COMPACT)
    assert newest(again) == EXPECTED
    assert append(again.log, batch(b"more", key=b"other")).first_offset == 40
    again.log.high_watermark = again.log.log_end_offset
    again.log.roll(START)
    again.log.flush()
    again.cleaner._start_work = lambda job: Tried(job, files)
    again.cleaner.step(again.clock.now)
    again.cleaner.step(again.clock.now)
    assert newest(again) == [*EXPECTED, (40, b"other", b"more")]


def test_compaction_is_retried_when_the_worker_cannot_start(tmp_path: Path) -> None:
    house, files = filled(tmp_path)

    def no_memory(_: CleanJob) -> Tried:
        raise OSError(errno.ENOMEM, "simulated")

    house.cleaner._start_work = no_memory
    assert not house.cleaner.step(house.clock.now)
    assert house.log.log_directory.online
    house.cleaner._start_work = lambda job: Tried(job, files)
    assert not house.cleaner.step(house.clock.now + LEFT_ALONE_MS - 1)
    assert house.cleaner.step(house.clock.now + LEFT_ALONE_MS)


def test_shutdown_continues_when_the_disk_fails(tmp_path: Path) -> None:
    """The files that the worker left cannot be removed: the logs are closed nevertheless."""
    house, files = filled(tmp_path)
    house.cleaner._start_work = lambda job: Stopped()
    assert house.cleaner.step(house.clock.now)
    Path(house.log.directory, "00000000000000000000.log.cleaned").touch()
    files.fail(tmp_path, ".cleaned", unlink=errno.EROFS)
    house.cleaner.close()
    assert not house.cleaner.busy
    house.manager.close()


class Stopped:
    """A job that never ends."""

    def poll(self) -> None:
        return None

    def stop(self) -> None:
        pass
