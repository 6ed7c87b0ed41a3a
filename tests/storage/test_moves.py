"""A log moves to another log directory, and the process or the power ends anywhere."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.log import Files, Log, LogConfig, LogManager, StorageError
from ottla.log.directory import LogDirectory
from ottla.log.moves import LogMoves
from ottla.log.relocation import MARK
from ottla.records import BatchProducer
from tests.simulation.world.disk import Crash, SimulatedDisk

from .helpers import TOPIC_ID, ManualClock, append, batch, values

A = TopicPartition("a", 0)
# Segments of a few batches, so that a move includes sealed ones.
SMALL = LogConfig(segment_bytes=400, file_delete_delay_ms=0)
CHUNK = 300
SEEDS = int(os.environ.get("OTTLA_POWER_CUTS", "12"))


def opened(homes: tuple[str, ...], files: Files | None = None) -> LogManager:
    logs = LogManager(homes, ManualClock(), SMALL, files=files)
    logs.load()
    return logs


def other_directory(logs: LogManager, log: Log) -> LogDirectory:
    return next(each for each in logs.log_directories() if each is not log.log_directory)


def copy_all(moves: LogMoves, log: Log, future: Log) -> None:
    for _ in range(100):
        if moves.align(log, future):
            future.flush()
        if moves.copy_some(log, future, CHUNK) == 0:
            return
    raise AssertionError("the copy makes no progress")


def complete(moves: LogMoves, log: Log, future: Log) -> None:
    copy_all(moves, log, future)
    moves.seal(log, future)
    moves.replace(log, future)
    moves.sync_new_name(future)
    moves.retire(log)
    moves.finish(log, future)


def homes_in(tmp_path: Path) -> tuple[str, str]:
    return str(tmp_path / "one"), str(tmp_path / "two")


class Story:
    """Appends and moves on a disk with failures. `promised` records were on disk when they were promised."""

    def __init__(self, seed: int, homes: tuple[str, ...]) -> None:
        self.random = random.Random(seed)
        self.homes = homes
        self.disk = SimulatedDisk(seed)
        self.sent: list[bytes] = []
        self.appended = self.promised = self.failures = 0
        for home in homes:
            Path(home).mkdir()  # the locks are on the real disk
            self.disk.make_directory(home)
        self.disk.fsync_directory(str(Path(homes[0]).parent))
        self.start()

    def start(self) -> None:
        self.logs = opened(self.homes, self.disk)
        self.moves = LogMoves(self.logs)
        self.logs.create(A, TOPIC_ID, SMALL)

    @property
    def log(self) -> Log:
        log = self.logs.get(A)
        assert log is not None
        return log

    def write(self) -> None:
        for _ in range(self.random.randrange(4)):
            self.sent.append(b"%d after %d failures" % (len(self.sent), self.failures))
            append(self.log, batch(self.sent[-1]), epoch=7)
            self.appended = len(self.sent)
        if self.random.random() < 0.7:
            self.log.flush()
            self.promised = len(self.sent)
        self.log.high_watermark = self.log.log_end_offset

    def live(self, moves: int) -> None:
        """Write and move; raises Crash."""
        for _ in range(moves):
            self.write()
            log = self.log
            future = self.logs.futures.get(A) or self.moves.begin(log, other_directory(self.logs, log))
            copy_all(self.moves, log, future)
            self.write()
            copy_all(self.moves, log, future)
            self.moves.seal(log, future)
            self.write()
            copy_all(self.moves, log, future)
            self.moves.replace(log, future)
            self.write()
            self.moves.sync_new_name(future)
            self.write()
            self.moves.retire(log)
            self.write()
            self.moves.finish(log, future)
            self.logs.checkpoint()
            self.logs.cleanup(self.logs.clock.wall_ms())

    def fail(self, *, power: bool) -> None:
        """End the process, or the power, and start again; checks what is left."""
        self.logs.abandon()
        self.failures += 1
        self.disk = self.disk.crash() if power else self.disk.revive()
        self.start()
        found = values(self.log)
        assert found == self.sent[: len(found)]
        assert len(found) >= (self.promised if power else self.appended)
        self.sent = self.sent[: len(found)]
        self.appended = len(found)
        self.promised = min(self.promised, len(found))
        self.log.high_watermark = self.log.log_end_offset


@pytest.mark.parametrize("seed", range(SEEDS))
def test_failure_at_any_moment_of_a_move_loses_nothing(tmp_path: Path, seed: int) -> None:
    story = Story(seed, homes_in(tmp_path))
    for _ in range(5):
        story.disk.crash_after = story.random.randrange(150)
        with pytest.raises(Crash):
            story.live(20)
        story.fail(power=story.random.random() < 0.6)
    story.live(3)
    assert values(story.log) == story.sent
    story.logs.close()
    names = {home: [name for name in story.disk.list(home) if name.startswith("a-0")] for home in story.homes}
    assert sorted(map(len, names.values())) == [0, 1], names
    assert MARK not in story.disk.list(story.log.directory)
    story.start()
    assert values(story.log) == story.sent


@pytest.mark.parametrize("seed", range(8))
def test_original_is_deleted_only_when_the_name_of_the_copy_is_on_disk(tmp_path: Path, seed: int) -> None:
    story = Story(seed, homes_in(tmp_path))
    while not story.promised:
        story.write()
    log = story.log
    future = story.moves.begin(log, other_directory(story.logs, log))
    copy_all(story.moves, log, future)
    story.moves.seal(log, future)
    story.moves.replace(log, future)
    story.moves.sync_new_name(future)
    story.moves.retire(log)
    story.fail(power=True)


def test_log_moves_with_its_producers_and_its_log_start(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    for number in range(20):
        append(log, batch(b"%d" % number * 9, producer=BatchProducer(5, 0, number)), epoch=3)
    log.high_watermark = 20
    append(log, batch(b"deleted", producer=BatchProducer(6, 0, 0)), epoch=3)
    append(log, batch(b"last", producer=BatchProducer(5, 0, 20)), epoch=3)
    log.high_watermark = 22
    log.delete_records_before(21)
    log.delete_old_segments(logs.clock.wall_ms())
    future = moves.begin(log, other_directory(logs, log))
    complete(moves, log, future)
    moved = logs.get(A)
    assert moved is future
    assert moved.directory == str(tmp_path / "two" / "a-0")
    assert (moved.log_start_offset, moved.high_watermark, moved.log_end_offset) == (21, 22, 22)
    assert moved.topic_id == TOPIC_ID
    again = append(moved, batch(b"deleted", producer=BatchProducer(6, 0, 0)), epoch=3)
    assert (again.duplicate, again.first_offset) == (True, 20)
    expected = values(moved)
    logs.close()
    assert [path.name for path in (tmp_path / "one").iterdir() if path.is_dir() and "-delete" not in path.name] == []
    logs = opened(homes_in(tmp_path))
    reopened = logs.get(A)
    assert reopened is not None
    assert values(reopened) == expected
    assert reopened.log_start_offset == 21


def test_copy_of_a_compacted_log_knows_where_each_epoch_began(tmp_path: Path) -> None:
    """A follower with other records at 3 and 4 must truncate them, although no batch shows that epoch 2 began there."""
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    for number in range(3):
        append(log, batch(b"%d" % number), epoch=1)
    log.epochs.assign(2, 3)
    log.roll(offset=5)
    append(log, batch(b"5"), epoch=2)
    future = moves.begin(log, other_directory(logs, log))
    complete(moves, log, future)
    assert future.offset_for_leader_epoch(1) == (1, 3)
    logs.abandon()
    reopened = opened(homes_in(tmp_path)).get(A)
    assert reopened is not None
    assert reopened.offset_for_leader_epoch(1) == (1, 3)


def test_copy_that_lost_its_topic_id_gets_it_from_its_log(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    log = logs.create(A, TOPIC_ID, SMALL)
    append(log, batch(b"first"))
    log.flush()
    future = LogMoves(logs).begin(log, other_directory(logs, log))
    logs.abandon()
    Path(future.directory, "partition.metadata").unlink()  # as a power cut does
    logs = opened(homes_in(tmp_path))
    log, future = logs.get(A), logs.futures[A]  # type: ignore[assignment]
    complete(LogMoves(logs), log, future)
    assert future.topic_id == TOPIC_ID
    logs.abandon()
    reopened = opened(homes_in(tmp_path)).get(A)
    assert reopened is not None
    assert reopened.topic_id == TOPIC_ID


def test_copy_drops_records_of_which_its_compacted_log_has_no_trace(tmp_path: Path) -> None:
    """The log was truncated to 3 and got the batch at 5 next, which does not show that epoch 2 began at 3."""
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    for number in range(4):
        append(log, batch(b"%d" % number), epoch=1)
    future = moves.begin(log, other_directory(logs, log))
    copy_all(moves, log, future)
    log.truncate_to(3)
    log.roll(offset=5)
    append(log, batch(b"5"), epoch=2)
    complete(moves, log, future)
    assert values(future) == [b"0", b"1", b"2", b"5"]


def test_start_truncates_a_copy_with_its_log(tmp_path: Path) -> None:
    """Before the log gets other records at the offsets that a power cut took from it."""
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    for number in range(8):
        append(log, batch(b"%d" % number), epoch=1)
    copy_all(moves, log, moves.begin(log, other_directory(logs, log)))
    log.truncate_to(5)
    logs.abandon()
    assert opened(homes_in(tmp_path)).futures[A].log_end_offset == 5


def test_copy_is_truncated_with_its_log(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    for number in range(8):
        append(log, batch(b"old %d" % number), epoch=1)
    future = moves.begin(log, other_directory(logs, log))
    copy_all(moves, log, future)
    assert future.log_end_offset == 8
    log.truncate_to(5)
    for number in range(9):
        append(log, batch(b"new %d" % number), epoch=2)
    copy_all(moves, log, future)
    assert values(future) == values(log)
    log.truncate_to(0)
    append(log, batch(b"third"), epoch=3)
    copy_all(moves, log, future)
    assert values(future) == [b"third"]


def test_move_that_is_given_up_deletes_the_copy_only(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID, SMALL)
    append(log, batch(b"x"))
    future = moves.begin(log, other_directory(logs, log))
    copy_all(moves, log, future)
    moves.discard(future)
    logs.cleanup(logs.clock.wall_ms())
    assert [path for path in (tmp_path / "two").iterdir() if path.is_dir()] == []
    assert values(log) == [b"x"]
    future = moves.begin(log, other_directory(logs, log))
    logs.delete([A])
    logs.cleanup(logs.clock.wall_ms())
    assert logs.futures == {}
    assert [path for home in homes_in(tmp_path) for path in Path(home).iterdir() if path.is_dir()] == []


def test_no_move_begins_while_a_directory_is_offline_or_for_a_very_long_name(tmp_path: Path) -> None:
    logs = opened((*homes_in(tmp_path), str(tmp_path / "three")))
    moves = LogMoves(logs)
    log = logs.create(A, TOPIC_ID)
    long = logs.create(TopicPartition("x" * 249, 0), TOPIC_ID)
    with pytest.raises(KafkaError) as info:
        moves.begin(long, other_directory(logs, long))
    assert info.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    logs.log_directories()[2].take_offline(OSError("test"))
    with pytest.raises(KafkaError) as info:
        moves.begin(log, logs.log_directories()[1])
    assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_copy_takes_the_place_of_its_log_only_if_that_does_not_exist(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    log = logs.create(A, TOPIC_ID, SMALL)
    append(log, batch(b"x"))
    future = LogMoves(logs).begin(log, other_directory(logs, log))
    copy_all(LogMoves(logs), log, future)
    logs.close()
    logs = LogManager(homes_in(tmp_path), ManualClock(), SMALL)
    logs.acquire()
    logs.log_directories()[0].take_offline(OSError("test"))
    logs.load()
    assert logs.get(A) is None
    with pytest.raises(KafkaError) as info:
        logs.create(A, TOPIC_ID)
    assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    logs.abandon()
    shutil.rmtree(tmp_path / "one" / "a-0")
    logs = opened(homes_in(tmp_path))
    assert values(logs.create(A, TOPIC_ID)) == [b"x"]


def test_two_logs_of_a_partition_without_a_move_are_an_error(tmp_path: Path) -> None:
    logs = opened(homes_in(tmp_path))
    log = logs.create(A, TOPIC_ID)
    complete(LogMoves(logs), log, LogMoves(logs).begin(log, other_directory(logs, log)))
    logs.close()
    (tmp_path / "one" / "a-0").mkdir()
    with pytest.raises(StorageError, match="two log directories"):
        opened(homes_in(tmp_path))


def test_compaction_waits_for_a_move(tmp_path: Path) -> None:
    from ottla.log.cleaner import Cleaner

    logs = opened(homes_in(tmp_path))
    config = LogConfig(segment_bytes=400, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    log = logs.create(A, TOPIC_ID, config)
    for number in range(30):
        append(log, batch(b"%d" % number * 9))
    log.flush()
    log.high_watermark = log.log_end_offset
    cleaner = Cleaner(logs)
    assert cleaner.choose(logs.clock.wall_ms()) is not None
    future = LogMoves(logs).begin(log, other_directory(logs, log))
    assert cleaner.choose(logs.clock.wall_ms()) is None
    LogMoves(logs).discard(future)
    assert cleaner.choose(logs.clock.wall_ms()) is not None
