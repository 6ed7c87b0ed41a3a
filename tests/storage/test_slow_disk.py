"""A very slow disk: periodic work does not queue up, and metadata operations do not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.server import Node
from ottla.cluster.node.schedulers import FLUSH_THREADS
from ottla.common.clock import SystemClock
from ottla.config import BrokerConfig
from ottla.log import Files
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.simulation.world.broker import SETTINGS
from tests.unit.broker.harness import batch

WAIT_S = 10.0
CHECKPOINTS = {
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
}
CHECKPOINTS_OFTEN = {
    "log_initial_task_delay_ms": "0",
    "log_flush_offset_checkpoint_interval_ms": "50",
    "log_flush_start_offset_checkpoint_interval_ms": "50",
    "replica_high_watermark_checkpoint_interval_ms": "50",
}


class SlowDisk(Files):
    """While `slow`, checkpoints and the syncs of logs wait for `go`, except for the metadata log."""

    def __init__(self) -> None:
        self.slow = False
        self.go = threading.Event()
        self.written: Counter[str] = Counter()
        self.synced: list[Path] = []

    def write_atomically(self, path: str, data: bytes | bytearray | memoryview) -> None:
        name = path.rpartition("/")[2]
        if self.slow and name in CHECKPOINTS:
            self.written[name] += 1
            self.go.wait(WAIT_S)
        super().write_atomically(path, data)

    def fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if self.slow and path.suffix == ".log" and path.parent.name != "__cluster_metadata-0":
            self.synced.append(path)
            self.go.wait(WAIT_S)
        super().fsync(fd)


@asynccontextmanager
async def started(disk: SlowDisk, **settings: str) -> AsyncIterator[Node]:
    config = BrokerConfig({**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}})
    node = Node(config, SystemClock(), asyncio.Event(), files=disk)
    await node.start()
    try:
        yield node
        node._housekeeping.stop()
    finally:
        disk.go.set()
        await node.close()  # this does the queued work


async def create(node: Node, *names: str) -> bool:
    """Create topics; return whether that succeeds within the time that a client would wait."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    made = node.broker.metadata.create_topics(CreateTopicsRequest(topics=topics))
    deadline = time.monotonic() + WAIT_S / 2
    while not made.done and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return made.done and not any(topic.error_code for topic in made.result().topics)


async def check_that_checkpoints_do_not_queue(directory: Path) -> None:
    disk = SlowDisk()
    async with started(disk, **CHECKPOINTS_OFTEN, log_dirs=str(directory)) as node:
        assert await create(node, "a")
        disk.slow = True
        for _ in range(20):
            node._housekeeping.do_all()
        assert await create(node, "b"), "CreateTopics waited for checkpoints"
    assert disk.written
    assert max(disk.written.values()) <= 2, f"checkpoints have queued up: {disk.written}"


async def check_that_syncs_leave_a_thread(directory: Path) -> None:
    disk = SlowDisk()
    async with started(disk, log_flush_interval_messages="1", log_dirs=str(directory)) as node:
        names = [f"t{i}" for i in range(3 * FLUSH_THREADS)]
        assert await create(node, *names)
        disk.slow = True
        for name in names:
            node.broker.partitions.get(name, 0).append(memoryview(batch(b"a")))
        while len(disk.synced) < FLUSH_THREADS:
            await asyncio.sleep(0.01)
        assert await create(node, "b"), "CreateTopics waited for other logs"


@pytest.mark.timeout(60)
def test_checkpoints_slower_than_their_interval_delay_nothing(tmp_path: Path) -> None:
    asyncio.run(check_that_checkpoints_do_not_queue(tmp_path))


@pytest.mark.timeout(60)
def test_metadata_does_not_wait_for_the_flushes_of_many_logs(tmp_path: Path) -> None:
    asyncio.run(check_that_syncs_leave_a_thread(tmp_path))


async def check_that_all_logs_get_files(directory: Path) -> None:
    async with started(SlowDisk(), log_dirs=str(directory)) as node:
        for part in (("a",), ("b", "c")):  # the second one comes after the first one's files
            assert await create(node, *part)
            deadline = time.monotonic() + WAIT_S
            while not all((directory / f"{name}-0").is_dir() for name in part) and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            assert all((directory / f"{name}-0").is_dir() for name in part)


@pytest.mark.timeout(60)
def test_logs_without_records_get_their_files(tmp_path: Path) -> None:
    asyncio.run(check_that_all_logs_get_files(tmp_path))
