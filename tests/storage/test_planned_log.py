"""A log without records has no files until its first append, or until the broker has time to create them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.shortage import ShortageError
from ottla.log import Log, LogManager
from ottla.log.checkpoints import read_topic_id
from ottla.log.files import Files
from ottla.log.follower import append_as_follower, restart_at
from tests.storage.helpers import START, TOPIC_ID, TP, ManualClock, append, batch, values

OTHER_ID = bytes(reversed(TOPIC_ID))


class FullDisk(Files):
    """Creates no file while `error` is set."""

    error: int | None = None

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        if create and self.error is not None:
            raise OSError(self.error, "simulated", path)
        return super().open(path, create=create, truncate=truncate, read_only=read_only)


def managed(path: Path, files: Files | None = None) -> LogManager:
    logs = LogManager([str(path)], ManualClock(), files=files)
    logs.load()
    return logs


def planned(logs: LogManager, topic_partition: TopicPartition = TP) -> Log:
    return logs.create(topic_partition, TOPIC_ID, plan=True)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_first_append_creates_the_files_with_the_topic_id(tmp_path: Path) -> None:
    log = planned(managed(tmp_path))
    assert not (tmp_path / "t-0").exists()
    append(log, batch(b"a"))
    assert names(tmp_path / "t-0") == ["00000000000000000000.log", "partition.metadata"]
    assert read_topic_id(log.files, log.directory) == TOPIC_ID
    assert values(log) == [b"a"]


def test_follower_s_first_append_creates_the_files(tmp_path: Path) -> None:
    log = planned(managed(tmp_path))
    append_as_follower(log, batch(b"a", leader_epoch=3), 3, START)
    assert read_topic_id(log.files, log.directory) == TOPIC_ID
    assert values(log) == [b"a"]


def test_flush_after_the_first_append_syncs_everything_that_it_created(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watching(Files):
        def fsync_if_there(self, path: str) -> None:
            synced.append(path)
            super().fsync_if_there(path)

        def fsync_directory(self, path: str) -> None:
            synced.append(path)
            super().fsync_directory(path)

    log = planned(managed(tmp_path, Watching()))
    assert log.flush() == 0
    assert synced == [], "a log without files has nothing to sync"
    append(log, batch(b"a"))
    assert log.flush() == 1
    assert {f"{tmp_path}/t-0/partition.metadata", f"{tmp_path}/t-0", str(tmp_path)} <= set(synced)


def test_planned_files_are_created_one_log_at_a_time(tmp_path: Path) -> None:
    logs = managed(tmp_path)
    created = [planned(logs, TopicPartition("t", index)) for index in range(3)]
    append(created[1], batch(b"a"))
    assert [logs.planned.create_next() for _ in range(3)] == [True, False, False]
    assert all((tmp_path / f"t-{index}" / "00000000000000000000.log").exists() for index in range(3))
    assert values(created[1]) == [b"a"]


def test_restart_of_a_log_without_files(tmp_path: Path) -> None:
    logs = managed(tmp_path)
    planned(logs)
    append(planned(logs, TopicPartition("t", 1)), batch(b"a"))
    logs.close()
    logs = managed(tmp_path)
    assert logs.get(TP) is None
    assert planned(logs).log_end_offset == 0
    again = logs.get(TopicPartition("t", 1))
    assert again is not None
    assert values(again) == [b"a"]


def test_follower_without_files_continues_at_the_leader_s_log_start(tmp_path: Path) -> None:
    log = planned(managed(tmp_path))
    restart_at(log, 100)
    append_as_follower(log, batch(b"a", base_offset=100), 0, START)
    assert (log.log_start_offset, log.log_end_offset) == (100, 101)
    assert read_topic_id(log.files, log.directory) == TOPIC_ID
    log.flush()


def test_queries_of_a_log_without_files(tmp_path: Path) -> None:
    log = planned(managed(tmp_path))
    assert log.offset_for_timestamp(0, 10) is None
    assert log.max_timestamp_offset() is None
    assert log.read(0, 100, 100) == b""
    assert log.delete_old_segments(START) == 0
    assert log.roll().file.size == 0
    assert log.size == 0
    assert not (tmp_path / "t-0").exists()


@pytest.mark.parametrize("recreated", [False, True])
def test_files_of_a_deleted_log_are_not_created(tmp_path: Path, recreated: bool) -> None:
    logs = managed(tmp_path)
    planned(logs)
    logs.delete([TP])
    if recreated:
        append(logs.create(TP, OTHER_ID, plan=True), batch(b"new"))
    while logs.planned.create_next():
        pass
    assert (tmp_path / "t-0").exists() is recreated
    if recreated:
        assert_is_the_new_topic_s(logs.get(TP))


def test_files_of_a_new_topic_are_not_created_again(tmp_path: Path) -> None:
    logs = managed(tmp_path)
    append(planned(logs), batch(b"old"))
    logs.delete([TP])
    append(logs.create(TP, OTHER_ID, plan=True), batch(b"new"))
    while logs.planned.create_next():
        pass
    assert_is_the_new_topic_s(logs.get(TP))


def assert_is_the_new_topic_s(log: Log | None) -> None:
    assert log is not None
    assert values(log) == [b"new"]
    assert read_topic_id(log.files, log.directory) == OTHER_ID


def test_append_to_a_deleted_log_creates_no_files(tmp_path: Path) -> None:
    logs = managed(tmp_path)
    log = planned(logs)
    logs.delete([TP])
    with pytest.raises(KafkaError):
        append(log, batch(b"late"))
    assert not logs.planned.create_next()
    assert not (tmp_path / "t-0").exists()
    assert logs.log_directories()[0].online
    append(logs.create(TP, OTHER_ID, plan=True), batch(b"new"))
    assert read_topic_id(log.files, log.directory) == OTHER_ID


def test_full_disk_at_the_first_append(tmp_path: Path) -> None:
    files = FullDisk()
    log = planned(managed(tmp_path, files))
    files.error = errno.ENOSPC
    with pytest.raises(KafkaError) as info:
        append(log, batch(b"a"))
    assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 0


def test_first_append_in_a_shortage_of_descriptors_can_be_retried(tmp_path: Path) -> None:
    files = FullDisk()
    logs = managed(tmp_path, files)
    log = planned(logs)
    files.error = errno.EMFILE
    with pytest.raises(ShortageError):
        append(log, batch(b"a"))
    assert not logs.planned.create_next()
    files.error = None
    append(log, batch(b"b"))
    assert values(log) == [b"b"]
    assert logs.log_directories()[0].online
