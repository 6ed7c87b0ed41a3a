"""The disk is full, fails or is read-only while a whole broker appends, rolls, snapshots and reads.

There are two log directories: the first has the metadata and one topic, the second another topic. A failure of the
second takes only its own partitions offline; a failure of the first stops the broker with a reason. When the disk works
again, every acknowledged record exists.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path
from typing import Self

import pytest

from ottla.common.errors import KafkaError
from ottla.log import Files, StorageError
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.records import Buffer
from tests.simulation.world.broker import NodeOnDisk
from tests.unit.broker.harness import batch

STORAGE_ERROR = 56
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: a client retries.
RETRIABLE_BY_MEMBERS = {14, 15, 16}
ROLLING = {"segment_index_bytes": 40, "index_interval_bytes": 0}
SETTINGS = {"metadata_log_max_record_bytes_between_snapshots": 1}


class FailingFiles(Files):
    """Fails for files below `broken`, with an errno for each of write, create, read, sync, rename and unlink."""

    def __init__(self) -> None:
        self.broken: dict[str, int] = {}
        self.below = ""
        self.suffix = ""
        self._paths: dict[int, str] = {}

    def fail(self, below: Path | str, suffix: str = "", **broken: int) -> None:
        self.below, self.suffix, self.broken = str(below), suffix, broken

    def heal(self) -> None:
        self.broken = {}

    def _try(self, what: str, path: str) -> None:
        number = self.broken.get(what)
        if number is not None and path.startswith(self.below) and path.endswith(self.suffix):
            raise OSError(number, "simulated", path)

    def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
        if create:
            self._try("create", path)
        fd = super().open(path, create=create, truncate=truncate, read_only=read_only)
        self._paths[fd] = path
        return fd

    def dup(self, fd: int) -> int:
        copy = super().dup(fd)
        self._paths[copy] = self._paths[fd]
        return copy

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        try:
            self._try("write", self._paths[fd])
        except OSError:
            super().pwrite(fd, bytes(data)[: len(data) // 2], position)  # a part of the data is written
            raise
        super().pwrite(fd, data, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._try("read", self._paths[fd])
        return super().pread(fd, size, position)

    def pread_large(self, fd: int, size: int, position: int) -> Buffer:
        self._try("read", self._paths[fd])
        return super().pread_large(fd, size, position)

    def unlink(self, path: str) -> None:
        self._try("unlink", path)
        super().unlink(path)

    def rename(self, old: str, new: str) -> None:
        self._try("rename", new)
        super().rename(old, new)

    def fsync(self, fd: int) -> None:
        self._try("sync", self._paths[fd])
        super().fsync(fd)

    def fsync_directory(self, path: str) -> None:
        self._try("sync", path)
        super().fsync_directory(path)


class Broker:
    """Two topics, each in its own log directory."""

    def __init__(self, home: Path, **settings: object) -> None:
        self.files = FailingFiles()
        self.directories = (home / "first", home / "second")
        self.settings = settings
        self.node: NodeOnDisk
        self.topics: tuple[str, str]
        self.answered = {"a": 0, "b": 0}

    async def start(self) -> None:
        self.node = NodeOnDisk(self.files, *self.directories, **SETTINGS, **self.settings)
        await self.node.start()

    async def __aenter__(self) -> Self:
        await self.start()
        for topic in ("a", "b"):
            await self.node.create(topic, **ROLLING)
            await self.produce(topic)
        home = self.node.node.broker.partitions.get("a", 0).log.log_directory.path
        self.topics = ("a", "b") if home == str(self.directories[0]) else ("b", "a")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.abandon()

    async def produce(self, topic: str) -> int:
        """Produce one batch; return the error code."""
        data = batch(b"%d" % self.answered[topic], timestamp=self.node.clock.wall_ms())
        error, offset = await self.node.produce(topic, data)
        if not error:
            assert offset == self.answered[topic]
            self.answered[topic] += 1
        return error

    async def fill(self, topic: str) -> int:
        """Append until it fails, at most two segments; return the error code."""
        for _ in range(12):
            error = await self.produce(topic)
            if error:
                return error
            self.node.chores()
            await asyncio.sleep(0)
        return 0

    async def again(self) -> None:
        """The disk works again: the next start has every acknowledged record, and appends succeed."""
        self.files.heal()
        await self.node.abandon()
        await self.start()
        for topic, count in self.answered.items():
            found, refused = await self.node.read(topic)
            assert not refused
            # A failed append may exist, since its outcome was not reported.
            assert [found[offset] for offset in range(count)] == [b"%d" % i for i in range(count)]
            self.answered[topic] = len(found)
            assert await self.produce(topic) == 0
        self.node.check()


FAULTS = {
    "full while appending": ("log", {"write": errno.ENOSPC}),
    "full while rolling": ("log", {"create": errno.ENOSPC}),
    "full while sealing an index": ("index", {"write": errno.ENOSPC, "create": errno.ENOSPC}),
    "full while writing a producer snapshot": ("", {"create": errno.ENOSPC}),
    "quota": ("", {"write": errno.EDQUOT, "create": errno.EDQUOT}),
    "broken at writing": ("", {"write": errno.EIO}),
    "broken at sync": ("", {"sync": errno.EIO}),
    "read-only": ("", {"write": errno.EROFS, "create": errno.EROFS}),
    "gone": ("", {"write": errno.ENODEV, "create": errno.ENODEV, "read": errno.ENODEV, "sync": errno.ENODEV}),
}


async def _second_fails(home: Path, suffix: str, faults: dict[str, int]) -> None:
    async with Broker(home, log_flush_interval_messages=1) as broker:
        good, bad = broker.topics
        broker.files.fail(broker.directories[1], suffix, **faults)
        assert await broker.fill(bad) == STORAGE_ERROR
        await asyncio.sleep(0.02)
        assert (await broker.node.fetch(bad, 0))[0] == STORAGE_ERROR
        assert await broker.produce(bad) == STORAGE_ERROR
        assert await broker.fill(good) == 0, "the other directory goes on"
        assert not broker.node.stopping.is_set()
        broker.node.check()
        await broker.again()


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_directory_takes_only_its_partitions_offline(tmp_path: Path, fault: str) -> None:
    asyncio.run(_second_fails(tmp_path, *FAULTS[fault]))


async def _first_fails(home: Path, suffix: str, faults: dict[str, int]) -> None:
    async with Broker(home) as broker:
        broker.files.fail(broker.directories[0], suffix, **faults)
        number = 0
        while not broker.node.stopping.is_set():
            number += 1
            assert number < 20, "it never noticed"
            try:
                async with asyncio.timeout(1):
                    await broker.node.create(f"new-{number}")
            except (AssertionError, TimeoutError):
                pass
            broker.node.chores()
            await asyncio.sleep(0.01)
        assert broker.node.node.stopping.failure is not None
        assert str(broker.directories[0]) in broker.node.node.stopping.failure
        await broker.again()


@pytest.mark.parametrize("fault", [name for name in FAULTS if "index" not in name])
def test_failure_of_the_metadata_directory_stops_the_broker(tmp_path: Path, fault: str) -> None:
    asyncio.run(_first_fails(tmp_path, *FAULTS[fault]))


async def _snapshot_fails(home: Path) -> None:
    async with Broker(home) as broker:
        broker.files.fail(broker.directories[0] / "__cluster_metadata-0", ".part", write=errno.ENOSPC)
        for i in range(4):
            await broker.node.create(f"new-{i}")
            for _ in range(4):
                broker.node.chores()
                await asyncio.sleep(0.005)
        assert not broker.node.stopping.is_set(), "a snapshot can wait"
        await broker.again()
        assert "new-3" in broker.node.node.broker.metadata.image.topics_by_name


def test_metadata_snapshot_that_does_not_fit_is_written_later(tmp_path: Path) -> None:
    asyncio.run(_snapshot_fails(tmp_path))


async def _read_fails(home: Path) -> None:
    async with Broker(home) as broker:
        good, bad = broker.topics
        await broker.fill(bad)
        broker.files.fail(broker.directories[1], read=errno.EIO)
        assert (await broker.node.fetch(bad, 0))[0] == STORAGE_ERROR
        assert await broker.produce(good) == 0
        await broker.again()


def test_unreadable_disk_takes_only_its_partitions_offline(tmp_path: Path) -> None:
    asyncio.run(_read_fails(tmp_path))


async def _offsets_fail(home: Path, faults: dict[str, int]) -> None:
    broker = Broker(home, log_flush_interval_messages=1)
    await broker.start()
    try:
        await broker.node.create("a", **ROLLING)  # in the first directory, so that the groups' log is in the second
        assert await broker.node.commit("g", "a", 1) == 0
        assert broker.node.node.broker.partitions.get("__consumer_offsets", 0).log.log_directory.path == str(
            broker.directories[1]
        )
        broker.files.fail(broker.directories[1], **faults)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
        topics = [OffsetCommitRequestTopic(name="a", partitions=[partition])]
        request = OffsetCommitRequest(group_id="g", topics=topics, generation_id_or_member_epoch=-1, member_id="")
        for _ in range(3):
            answer = await broker.node.ask(request, 8)
            assert answer.topics[0].partitions[0].error_code in RETRIABLE_BY_MEMBERS
            broker.node.chores()
        assert await broker.fill("a") == 0, "what is in the other directory goes on"
        assert not broker.node.stopping.is_set()
        broker.node.check()
        del broker.answered["b"]
        await broker.again()
        assert (await broker.node.committed("g"))["a", 0] in {1, 2}, "the second commit was not acknowledged"
        assert await broker.node.commit("g", "a", 3) == 0
        assert await broker.node.committed("g") == {("a", 0): 3}
    finally:
        await broker.node.abandon()


@pytest.mark.parametrize("fault", ["full while appending", "broken at sync", "gone"])
def test_failed_disk_with_group_offsets_refuses_commits(tmp_path: Path, fault: str) -> None:
    with asyncio.Runner() as runner:
        runner.run(_offsets_fail(tmp_path, FAULTS[fault][1]))


READ_AT_A_START = {
    "segments": ".log",
    "indices": "index",
    "producer snapshots": ".snapshot",
    "leader epochs": "leader-epoch-checkpoint",
    "topic ids": "partition.metadata",
    "recovery points": "recovery-point-offset-checkpoint",
    "log starts": "log-start-offset-checkpoint",
}


async def _read_fails_at_a_start(home: Path, suffix: str) -> None:
    async with Broker(home) as broker:
        good, bad = broker.topics
        await broker.fill(bad)
        await broker.node.abandon()
        broker.files.fail(broker.directories[1], suffix, read=errno.EIO)
        await broker.start()
        assert await broker.produce(good) == 0
        error, _, _ = await broker.node.fetch(bad, 0)
        assert error == STORAGE_ERROR or suffix == "index", "not served without what could not be read"
        broker.node.check()
        await broker.again()


@pytest.mark.parametrize("kind", READ_AT_A_START)
def test_disk_unreadable_at_start_takes_only_its_partitions_offline(tmp_path: Path, kind: str) -> None:
    asyncio.run(_read_fails_at_a_start(tmp_path, READ_AT_A_START[kind]))


async def _metadata_cannot_be_read(home: Path, suffix: str) -> None:
    async with Broker(home) as broker:
        await broker.node.abandon()
        broker.files.fail(broker.directories[0] / "__cluster_metadata-0", suffix, read=errno.EIO)
        with pytest.raises((OSError, KafkaError, StorageError), match="__cluster_metadata-0"):
            await broker.start()
        await broker.again()


@pytest.mark.parametrize("suffix", [".log", "quorum-state"])
def test_unreadable_metadata_is_reported_and_not_replaced(tmp_path: Path, suffix: str) -> None:
    asyncio.run(_metadata_cannot_be_read(tmp_path, suffix))


async def _lost(home: Path, *, empty: bool) -> None:
    async with Broker(home) as broker:
        good, bad = broker.topics
        await broker.node.stop()
        broker.directories[1].rename(home / "elsewhere")
        if empty:
            broker.directories[1].mkdir()  # the mount point exists, but no disk is mounted
        else:
            broker.directories[1].write_bytes(b"")
        for _ in range(2):  # a second start must give the same answer
            await broker.start()
            assert await broker.produce(good) == 0
            assert (await broker.node.fetch(bad, 0))[0] == STORAGE_ERROR, "it was recreated without its records"
            broker.node.check()
            await broker.node.stop()
        if empty:
            shutil.rmtree(broker.directories[1])
        else:
            broker.directories[1].unlink()
        (home / "elsewhere").rename(broker.directories[1])
        await broker.again()


@pytest.mark.parametrize("empty", [False, True], ids=["not a directory", "an empty one instead"])
def test_lost_directory_is_used_again_when_it_returns(tmp_path: Path, *, empty: bool) -> None:
    asyncio.run(_lost(tmp_path, empty=empty))
