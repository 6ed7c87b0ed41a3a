"""A disk that is slower than the clock: what is done by the clock does not queue, and metadata does not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import FLUSH_THREADS
from ottla.broker.server import Node
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
    """Once `slow`, no checkpoint is written and no log but the metadata's is synced until `go`."""

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
        await node.close()  # which does what has queued


async def create(node: Node, *names: str) -> bool:
    """Whether the topics are there within the time that a client would wait."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    made = node.broker.metadata.create_topics(CreateTopicsRequest(topics=topics))
    deadline = time.monotonic() + WAIT_S / 2
    while not made.done and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return made.done and not any(topic.error_code for topic in made.result().topics)


async def is_upkept(directory: Path) -> None:
    disk = SlowDisk()
    async with started(disk, **CHECKPOINTS_OFTEN, log_dirs=str(directory)) as node:
        assert await create(node, "a")
        disk.slow = True
        for _ in range(20):
            node._housekeeping.do_all()
        assert await create(node, "b"), "it waited for checkpoints"
    assert disk.written
    assert max(disk.written.values()) <= 2, f"turns have queued: {disk.written}"


async def syncs_many_logs(directory: Path) -> None:
    disk = SlowDisk()
    async with started(disk, log_flush_interval_messages="1", log_dirs=str(directory)) as node:
        names = [f"t{i}" for i in range(3 * FLUSH_THREADS)]
        assert await create(node, *names)
        disk.slow = True
        for name in names:
            node.broker.partitions.get(name, 0).append(memoryview(batch(b"a")))
        while len(disk.synced) < FLUSH_THREADS:
            await asyncio.sleep(0.01)
        assert await create(node, "b"), "it waited for the logs of others"


@pytest.mark.timeout(60)
def test_checkpoints_that_take_longer_than_their_interval_hold_up_nothing(tmp_path: Path) -> None:
    asyncio.run(is_upkept(tmp_path))


@pytest.mark.timeout(60)
def test_metadata_does_not_wait_for_the_flushes_of_many_logs(tmp_path: Path) -> None:
    asyncio.run(syncs_many_logs(tmp_path))
