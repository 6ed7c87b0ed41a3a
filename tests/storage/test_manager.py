"""Log directories: where partitions are created, what a restart finds, which logs a failing disk takes offline."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition, uuid_to_text
from ottla.log import DirectoryInfo, Files, LogConfig, LogManager, LogManagerPorts, StorageError
from ottla.log.directory_names import marked_name
from ottla.log.storage import MetaProperties, check_meta, format_directory, read_meta
from tests.storage.helpers import START, TOPIC_ID, ManualClock, append, batch, values

A, B, C = (TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a-b", 12))


class FailingFiles(Files):
    """Writes below `path` fail."""

    path = "/nowhere"

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        if path.startswith(self.path):
            raise OSError(errno.EIO, "simulated", path)
        return super().open(path, create=create, truncate=truncate, read_only=read_only)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        if str(Path(f"/proc/self/fd/{fd}").resolve()).startswith(self.path):
            raise OSError(errno.ENOSPC, "simulated")
        super().pwrite(fd, data, position)


def manager(*paths: Path, clock: ManualClock | None = None, **options: object) -> LogManager:
    made = LogManager([str(path) for path in paths], clock or ManualClock(), **options)  # type: ignore[arg-type]
    made.load()
    return made


def test_partitions_spread_over_the_directories_and_are_found_again(tmp_path: Path) -> None:
    logs = manager(tmp_path / "1", tmp_path / "2")
    for tp in (A, B, C):
        append(logs.create(tp, TOPIC_ID), batch(str(tp).encode()))
    assert len({log.log_directory.path for log in logs.all()}) == 2
    logs.get(B).high_watermark = 1
    logs.close(broker_epoch=5)
    assert (tmp_path / "1" / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":5}'
    logs = manager(tmp_path / "1", tmp_path / "2")
    assert not (tmp_path / "1" / ".kafka_cleanshutdown").exists()
    assert logs.log_directories()[0].broker_epoch == 5
    for tp in (A, B, C):
        log = logs.get(tp)
        assert log is not None
        assert values(log) == [str(tp).encode()]
        assert (log.topic_id, log.flushed_offset) == (TOPIC_ID, 1)
    assert logs.get(B).high_watermark == 1
    assert logs.create(A, TOPIC_ID) is logs.get(A)
    logs.close()


def test_a_crash_is_recovered_from_the_checkpoints(tmp_path: Path) -> None:
    logs = manager(tmp_path, defaults=LogConfig(segment_bytes=300))
    log = logs.create(A, TOPIC_ID)
    for _ in range(10):
        append(log, batch(b"x" * 50))
    log.flush()
    log.high_watermark = 10
    log.delete_records_before(5)
    logs.checkpoint()
    append(log, batch(b"y"))
    logs.abandon()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\na 0 10\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n3\n" + "a 0 5\n" * 3
    log = manager(tmp_path).get(A)
    assert (log.log_start_offset, log.flushed_offset, log.log_end_offset) == (5, 10, 11)


def test_two_brokers_cannot_use_one_directory(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    with pytest.raises(StorageError, match=f"held by process {os.getpid()}: "):
        manager(tmp_path)
    script = (
        "import sys; from ottla.log import LogManager, StorageError; from ottla.common.clock import SystemClock\n"
        "try: LogManager([sys.argv[1]], SystemClock()).load()\n"
        "except StorageError as e: print(e)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert f"held by process {os.getpid()}: " in result.stdout
    logs.close()
    manager(tmp_path).close()


def test_a_disk_that_fails_takes_only_its_logs_offline(tmp_path: Path) -> None:
    files = FailingFiles()
    failed: list[DirectoryInfo] = []
    logs = manager(
        tmp_path / "1", tmp_path / "2", files=files, ports=LogManagerPorts(lambda info, error: failed.append(info))
    )
    first, second = logs.create(A, TOPIC_ID), logs.create(B, TOPIC_ID)
    files.path = first.log_directory.path
    for _ in range(2):
        with pytest.raises(KafkaError) as info:
            append(first, batch(b"x"))
        assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(second, batch(b"x"))
    assert [info.path for info in failed] == [first.log_directory.path]
    assert [info.online for info in logs.directories()] == [False, True]
    assert logs.create(C, TOPIC_ID).log_directory.path == second.log_directory.path
    logs.cleanup(START)
    logs.checkpoint()
    logs.close()
    assert not (tmp_path / "1" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "2" / ".kafka_cleanshutdown").exists()


def test_no_usable_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="None of the log directories"):
        manager(tmp_path / "file" / "below")


def test_deleted_partition_is_removed_from_disk_after_its_delay(tmp_path: Path) -> None:
    clock = ManualClock()
    logs = manager(tmp_path, clock=clock)
    long_topic = TopicPartition("x" * 249, 0)
    for tp in (A, long_topic):
        append(logs.create(tp, TOPIC_ID), batch(b"x"))
        assert logs.delete([tp]) == 1
        assert logs.delete([tp]) == 0
        assert logs.get(tp) is None
    names = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert len(names) == 2
    assert all(name.endswith("-delete") and len(name) <= 255 for name in names)
    append(logs.create(A, bytes(reversed(TOPIC_ID))), batch(b"y"))
    logs.cleanup(clock.now + 59_000)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 3
    logs.cleanup(clock.now + 60_000)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["a-0"]
    logs.delete([A])
    logs.close()
    logs = manager(tmp_path, clock=clock)
    assert logs.all() == []
    logs.cleanup(clock.now + 60_000)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_partition_of_an_older_namesake_is_marked_stray(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.create(A, TOPIC_ID)
    with pytest.raises(KafkaError) as info:
        logs.create(A, bytes(reversed(TOPIC_ID)))
    assert info.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    logs.close()
    logs = LogManager([str(tmp_path)], ManualClock())
    logs.load(is_stray=lambda tp, topic_id: topic_id != bytes(reversed(TOPIC_ID)))
    assert logs.all() == []
    assert [path.name[-6:] for path in tmp_path.iterdir() if path.is_dir()] == ["-stray"]


def test_foreign_directories_are_left_alone(tmp_path: Path) -> None:
    for name in ("lost+found", "notes", "__cluster_metadata-0", marked_name(A, "-future")):
        (tmp_path / name).mkdir()
    assert manager(tmp_path).all() == []
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 4


def test_a_partition_in_two_directories_is_an_error(tmp_path: Path) -> None:
    for name in "12":
        (tmp_path / name / "a-0").mkdir(parents=True)
    with pytest.raises(StorageError, match="two log directories"):
        manager(tmp_path / "1", tmp_path / "2")


def test_a_directory_is_formatted_once(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    meta = format_directory(Files(), path, "cluster", 3, TOPIC_ID)
    assert read_meta(Files(), path) == meta == MetaProperties("cluster", 3, TOPIC_ID)
    assert f"directory.id={uuid_to_text(TOPIC_ID)}" in (tmp_path / "data" / "meta.properties").read_text()
    with pytest.raises(StorageError, match="already formatted"):
        format_directory(Files(), path, "cluster", 3, TOPIC_ID)
    assert format_directory(Files(), path, "cluster", 3, bytes(16), ignore_formatted=True) == meta
    for cluster, node in (("other", 3), ("cluster", 4)):
        with pytest.raises(StorageError, match="belongs to"):
            check_meta(meta, path, cluster, node)
    assert read_meta(Files(), str(tmp_path)) is None
