"""A disk that is slower than the clock: what is done by the clock does not queue, and metadata does not wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.broker.server import Node
from ottla.common.clock import SystemClock
from ottla.common.completion import Completion
from ottla.config import BrokerConfig
from ottla.log import Files
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest

from .whole_node import SETTINGS

WAIT_S = 10.0
CHECKPOINTS = {
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
}
BUSY = {
    "log.initial.task.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}


class SlowDisk(Files):
    """Once `slow`, no checkpoint is written and no log but the metadata's is synced until `go`."""

    def __init__(self) -> None:
        self.slow = False
        self.go = threading.Event()
        self.written: Counter[str] = Counter()

    def write_atomically(self, path: str, data: bytes | bytearray | memoryview) -> None:
        name = path.rpartition("/")[2]
        if self.slow and name in CHECKPOINTS:
            self.written[name] += 1
            self.go.wait(WAIT_S)
        super().write_atomically(path, data)


async def until(done: Completion[object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done.done and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


async def create(node: Node, name: str) -> bool:
    """Whether the topic is there within the time that a client would wait."""
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    made = node.broker.metadata.create_topics(CreateTopicsRequest(topics=topics))
    await until(made)  # type: ignore[arg-type]
    return made.done and made.result().topics[0].error_code == 0


async def run(directory: Path) -> None:
    disk = SlowDisk()
    config = BrokerConfig({**SETTINGS, **BUSY, "log.dirs": str(directory)})
    node = Node(config, SystemClock(), asyncio.Event(), files=disk)
    await node.start()
    try:
        assert await create(node, "a")
        disk.slow = True
        for _ in range(20):
            node._housekeeping.do_all()
        assert await create(node, "b"), "it waited for checkpoints"
        node._housekeeping.stop()
    finally:
        disk.go.set()
        await node.close()  # which does what has queued
    assert disk.written
    assert max(disk.written.values()) <= 2, f"turns have queued: {disk.written}"


@pytest.mark.timeout(60)
def test_checkpoints_that_take_longer_than_their_interval_hold_up_nothing(tmp_path: Path) -> None:
    asyncio.run(run(tmp_path))
