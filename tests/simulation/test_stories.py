"""Whole stories under one seed: produce, kill, recover, consume, on a faulty network and a disk that loses writes.

A real broker runs on a simulated disk and clock. It is killed (the operating system keeps unsynced writes), loses power
(unsynced writes are lost, torn or kept), or is stopped, at any moment. Meanwhile requests and responses are lost. At
the end of each life, and of the story:

- every acknowledged record is in the log once, at its offset, and nothing is in the log that was not sent;
- a consumer that restarts at its committed offset reads every record, and never two values at one offset;
- an acknowledged commit is never lost.

`OTTLA_SEEDS=500 pytest tests/simulation/test_stories.py` runs more; the failing seed is in the test's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from random import Random

import pytest

from ottla.common.errors import KafkaError
from tests.simulation.world.broker import NodeOnDisk
from tests.simulation.world.clients import GroupConsumer, IdempotentProducer, Link, MessageLost
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.simulation.world.network import Network

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))
LIVES = 4
STEPS = 30
TOPIC, GROUP = "story", "readers"


class Story:
    """One producer and one consumer of a broker that crashes and restarts several times."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(seed)
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk(seed)
        self.directory = directory
        directory.mkdir()
        self.link = Link(Network(self.clock, self.random, loss=0.1))
        self.producer = IdempotentProducer(self.link, TOPIC)
        self.consumer = GroupConsumer(self.link, TOPIC, GROUP)
        self.history: list[tuple[str, int, int, int]] = []
        self._sent = 0

    @property
    def broker(self) -> NodeOnDisk:
        assert self.link.broker is not None
        return self.link.broker

    async def run(self) -> None:
        try:
            await self._start()
            await self.broker.create(TOPIC, segment_index_bytes=40, index_interval_bytes=0)
            for _ in range(LIVES):
                await self._live()
            await self._check()
        finally:
            if self.link.broker is not None:
                await self.link.broker.abandon()

    async def _start(self) -> None:
        # Every append is flushed, so that an acknowledgement also holds after a power cut.
        broker = NodeOnDisk(self.disk, self.directory, clock=self.clock, log_flush_interval_messages=1)
        self.link.broker = broker
        await broker.start()

    async def _live(self) -> None:
        """Run clients until the broker ends, then recover and finish the batch in flight."""
        self.disk.crash_after = self.random.randrange(20, 200) if self.random.random() < 0.6 else None
        end = self.random.choice(("kill", "power cut", "stop"))
        try:
            for _ in range(STEPS):
                await self._step()
                self.broker.check()
            if end == "stop":
                await self.broker.stop()
        except Crash:
            pass
        except KafkaError as error:
            if not isinstance(error.__cause__, Crash):
                raise
        self.broker.problem = None
        after = self.disk.revive() if end == "kill" else self.disk.crash()
        self.disk.revive()
        await self.broker.abandon()
        self.disk = after
        await self._start()
        await self.producer.resume()
        await self.consumer.restart()
        await self._check()
        self._note(end)

    async def _step(self) -> None:
        self.clock.advance_to(self.clock.now_ms + self.random.randrange(1, 500))
        choice = self.random.random()
        if choice < 0.5:
            count = self.random.choice((1, 1, 3))
            values = [b"%d:%s" % (self._sent + i, b"x" * self.random.randrange(60)) for i in range(count)]
            self._sent += count
            await self.producer.send(values)
            self._note("produce")
        elif choice < 0.75:
            await self.consumer.poll()
            self._note("poll")
        elif choice < 0.85:
            with contextlib.suppress(MessageLost):
                await self.consumer.commit()
            self._note("commit")
        elif choice < 0.9:
            await self.consumer.restart()
            self._note("restart of the consumer")
        else:
            self.broker.chores()
            await asyncio.sleep(0)

    async def _check(self) -> None:
        acknowledged = self.producer.acknowledged
        found, refused = await self.broker.read(TOPIC)
        assert not refused
        assert found == dict(enumerate(acknowledged)), "the log is not what was acknowledged"
        await self.consumer.poll()
        assert self.consumer.seen == dict(enumerate(acknowledged)), "the consumer did not read every record"

    def _note(self, event: str) -> None:
        self.history.append((event, self.clock.now_ms, len(self.producer.acknowledged), self.consumer.position))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_are_read_once_after_every_crash(seed: int, tmp_path: Path) -> None:
    story = Story(seed, tmp_path / "data")
    asyncio.run(story.run())
    assert len(story.producer.acknowledged) > 20, "the story must write something to prove anything"


def test_same_seed_gives_the_same_story(tmp_path: Path) -> None:
    histories = []
    for directory in ("first", "second"):
        story = Story(5, tmp_path / directory)
        asyncio.run(story.run())
        histories.append(story.history)
    assert histories[0] == histories[1]
