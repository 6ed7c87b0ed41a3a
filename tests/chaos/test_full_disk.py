"""One of two log directories fills up: its partitions go offline, others are served, no acknowledged record is lost."""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.support import KAFKA_STORAGE_ERROR, WAIT_S, Writer, create_topic, read_numbers, value_of
from tests.clients.support import wait_until
from tests.clients.wire import Connection, batch, fetch, produce
from tests.ottla_process import OttlaProcess

DESCRIBE_LOG_DIRS = 35
TOPIC = "filling"


def mounted(path: Path, options: str) -> None:
    """Mount a small disk; only root may do that."""
    path.mkdir()
    result = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    if result.returncode:
        pytest.skip(f"THE FULL DISK IS NOT TESTED HERE: mount says {result.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    mounted(path, "size=8m")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=10)


def log_dir_errors(bootstrap: str) -> dict[str, int]:
    """The error code of each directory, from DescribeLogDirs v1."""
    with Connection(bootstrap) as connection:
        answer = connection.ask(DESCRIBE_LOG_DIRS, 1, struct.pack(">i", -1))
    errors: dict[str, int] = {}
    (count,) = struct.unpack_from(">i", answer, 4)
    position = 8
    for _ in range(count):
        error, length = struct.unpack_from(">hh", answer, position)
        position += 4
        errors[answer[position : position + length].decode()] = error
        position += length
        (topics,) = struct.unpack_from(">i", answer, position)
        position += 4
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", answer, position)
            (partitions,) = struct.unpack_from(">i", answer, position + 2 + length)
            position += 2 + length + 4 + partitions * (4 + 8 + 8 + 1)
    return errors


def fill(bootstrap: str, partition: int) -> tuple[dict[int, int], int]:
    """Write until the broker rejects a record; returns number by acknowledged offset, and the error."""
    acknowledged: dict[int, int] = {}
    deadline = time.monotonic() + WAIT_S
    with Connection(bootstrap) as connection:
        while time.monotonic() < deadline:
            number = len(acknowledged)
            answer = produce(connection, TOPIC, batch([value_of(number, 50_000)]), partition)
            if answer.error:
                return acknowledged, answer.error
            acknowledged[answer.base_offset] = number
    raise AssertionError("the disk is never full")


def test_full_disk_stops_only_its_own_partitions(tmp_path: Path, small_disk: Path) -> None:
    good = tmp_path / "good"
    process = OttlaProcess(tmp_path / "broker", {"log.dirs": f"{good},{small_disk}"})
    with process:
        create_topic(process, TOPIC, partitions=2)
        wait_until(lambda: any(small_disk.glob(f"{TOPIC}-*")), "both logs are there")
        (full,) = (int(path.name.rpartition("-")[2]) for path in small_disk.glob(f"{TOPIC}-*"))
        other = Writer(process, TOPIC, 1 - full)
        other.start()
        acknowledged, error = fill(process.bootstrap, full)
        assert error == KAFKA_STORAGE_ERROR
        assert len(acknowledged) > 100, "records were written until the disk was full"
        other.wait_for(50)
        with Connection(process.bootstrap) as connection:
            assert produce(connection, TOPIC, batch([b"more"]), full).error == KAFKA_STORAGE_ERROR
            assert fetch(connection, TOPIC, full, 0)[0] == KAFKA_STORAGE_ERROR
        assert log_dir_errors(process.bootstrap) == {str(good): 0, str(small_disk): KAFKA_STORAGE_ERROR}
        other.finish()
        process.stop()
        process.start()
        other.check()
        process.kill()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True, timeout=10)
        process.start()
        assert log_dir_errors(process.bootstrap) == {str(good): 0, str(small_disk): 0}
        assert read_numbers(process.bootstrap, TOPIC, full) == acknowledged
        with Connection(process.bootstrap) as connection:
            answer = produce(connection, TOPIC, batch([value_of(len(acknowledged), 10)]), full)
        assert answer == (0, len(acknowledged))
        other.check()
    process.assert_no_traceback()


def test_broker_whose_only_disk_is_full_stops_and_works_again_after_space_is_freed(
    tmp_path: Path, small_disk: Path
) -> None:
    process = OttlaProcess(tmp_path / "broker", {"log.dirs": str(small_disk)})
    with process:
        create_topic(process, TOPIC)
        acknowledged, error = fill(process.bootstrap, 0)
        assert error == KAFKA_STORAGE_ERROR
        assert process.wait() == 1, "the broker stops by itself with an error"
    assert f"ottla: The directory {small_disk}, which holds the metadata log, failed" in process.log_tail()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True, timeout=10)
    with process:
        assert read_numbers(process.bootstrap, TOPIC) == acknowledged
    process.assert_no_traceback()


def test_disk_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    disk = tmp_path / "read-only"
    mounted(disk, "ro,size=1m")
    try:
        process = OttlaProcess(tmp_path / "broker", {"log.dirs": str(disk)})
        process.directory.mkdir()
        result = subprocess.run(process.command(), capture_output=True, text=True, check=False, timeout=WAIT_S)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=10)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert str(disk) in result.stderr
    assert "Read-only file system" in result.stderr
