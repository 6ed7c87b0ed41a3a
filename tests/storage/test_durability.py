"""`Durability`: what a flush syncs, in which order, and how far the recovery point moves."""

import threading
from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.shortage import ShortageError, SyncError
from ottla.log import LogConfig
from ottla.log.durability import Durability
from ottla.log.epochs import LeaderEpochs
from ottla.log.segment_list import SegmentList
from tests.simulation.world.disk import SimulatedDisk
from tests.storage.helpers import START
from tests.storage.parts import context_at, segment_list, write

DIRECTORY = "/data/t-0"


class RecordingDisk(SimulatedDisk):
    """Records the files that are synced, in order. Before each sync it calls a hook or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def fsync(self, fd: int) -> None:
        self.before()
        super().fsync(fd)
        self.synced.append("file")

    def fsync_if_there(self, path: str) -> None:
        super().fsync_if_there(path)
        self.synced.append(path.rpartition("/")[2])

    def fsync_directory(self, path: str) -> None:
        super().fsync_directory(path)
        self.synced.append(path)


def parts(disk: SimulatedDisk, **config: int) -> tuple[SegmentList, Durability]:
    context = context_at("/data", disk)
    segments = segment_list(context)
    epochs = LeaderEpochs(context.files, context.path)
    return segments, Durability(context, LogConfig(**config), segments, epochs, 0)


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


def test_flush_moves_the_recovery_point_to_the_end(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments, 3)
    assert durability.flushed_offset == 0
    assert durability.flush() == durability.flushed_offset == 3


def test_flush_syncs_segments_then_small_files_then_directories(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    segments.roll(START, None)
    write(segments)
    disk.write(f"{DIRECTORY}/small", b"content")
    durability.sync_later(f"{DIRECTORY}/small")
    disk.synced.clear()
    durability.flush()
    assert disk.synced[:4] == ["file", "file", "file", "small"]
    assert disk.synced[-2:] == [DIRECTORY, "/data"]
    disk.synced.clear()
    durability.flush()
    assert disk.synced == ["file"]


def test_sealed_segments_may_be_closed_after_their_flush(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    old = segments.active
    segments.roll(START, None)
    assert durability.has_unsynced_segments
    durability.flush()
    assert not durability.has_unsynced_segments
    assert (old.file.evictable, segments.active.file.evictable) == (True, False)


def test_flush_of_a_truncated_log_does_not_move_the_recovery_point(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments, 5)

    def truncate() -> None:
        disk.before = lambda: None
        segments.truncate_to(2)
        durability.truncated_to(2)

    disk.before = truncate
    durability.flush()
    assert durability.flushed_offset == 0
    assert durability.flush() == 2


def test_truncation_lowers_the_recovery_point(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments, 5)
    durability.flush()
    durability.truncated_to(3)
    assert durability.flushed_offset == 3
    durability.restarted_at(100)
    assert durability.flushed_offset == 100


def test_records_appended_during_a_flush_are_not_promised(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments, 2)

    def append() -> None:
        disk.before = lambda: None
        write(segments)

    disk.before = append
    assert durability.flush() == 2
    assert durability.flush() == 3


def test_segment_rolled_during_a_flush_waits_for_the_next_one(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments, 2)

    def roll() -> None:
        disk.before = lambda: None
        segments.roll(START, None)
        write(segments)

    disk.before = roll
    assert durability.flush() == 2
    assert durability.has_unsynced_segments
    assert durability.flush() == 3


def test_failed_fsync_takes_the_directory_offline_for_good(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)

    def fail() -> None:
        raise SyncError(5, "simulated")

    disk.before = fail
    with pytest.raises(KafkaError) as first:
        durability.flush()
    disk.before = lambda: None
    with pytest.raises(KafkaError, match="offline") as second:
        durability.flush()
    assert first.value.code == second.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert durability.flushed_offset == 0


def test_flush_without_descriptors_leaves_everything_to_the_next_one(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    segments.roll(START, None)
    disk.write(f"{DIRECTORY}/small", b"content")
    durability.sync_later(f"{DIRECTORY}/small")

    def fail() -> None:
        raise OSError(24, "simulated")

    disk.before = fail
    with pytest.raises(ShortageError):
        durability.flush()
    disk.before = lambda: None
    disk.synced.clear()
    assert durability.flush() == 1
    assert "small" in disk.synced
    assert disk.synced[-2:] == [DIRECTORY, "/data"]


def test_flush_of_a_closed_log_does_nothing(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    segments.close()
    disk.synced.clear()
    assert durability.flush() == 0
    assert disk.synced == []


def test_flush_of_a_log_closed_meanwhile_writes_nothing_at_its_path(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    disk.before = segments.close
    disk.synced.clear()
    durability.flush()
    assert DIRECTORY not in disk.synced


@pytest.mark.parametrize(
    ("config", "records", "elapsed_ms", "needed"),
    [
        ({}, 1000, 1 << 40, False),
        ({"flush_messages": 3}, 2, 0, False),
        ({"flush_messages": 3}, 3, 0, True),
        ({"flush_ms": 1000}, 1, 999, False),
        ({"flush_ms": 1000}, 1, 1000, True),
        ({"flush_ms": 1000}, 0, 1000, False),
        ({"flush_ms": 1000}, 1, -1, True),
    ],
    ids=["never", "few records", "enough records", "too early", "in time", "nothing new", "clock set back"],
)
def test_flush_policy(disk: RecordingDisk, config: dict[str, int], records: int, elapsed_ms: int, needed: bool) -> None:
    segments, durability = parts(disk, **config)
    write(segments, records)
    assert durability.needs_flush(START + elapsed_ms) is needed


def test_changed_flush_policy_is_used_at_once(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    assert not durability.needs_flush(START)
    durability.reconfigure(LogConfig(flush_messages=1))
    assert durability.needs_flush(START)


def test_log_that_rolls_faster_than_it_syncs_is_ahead_of_its_disk(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    segments.active.file.open_files.limit = 2
    for _ in range(4):
        assert not durability.is_ahead_of_disk or len(segments) > 3
        write(segments)
        segments.roll(START, None)
    assert durability.is_ahead_of_disk
    durability.flush()
    assert not durability.is_ahead_of_disk


def test_two_flushes_do_not_overlap(disk: RecordingDisk) -> None:
    segments, durability = parts(disk)
    write(segments)
    running: list[int] = []

    def check() -> None:
        running.append(1)
        assert len(running) == 1
        running.pop()

    disk.before = check
    threads = [threading.Thread(target=durability.flush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert durability.flushed_offset == 1
