"""A power cut loses whatever was not synced on a broker's disk: records, offsets, metadata, checkpoints."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.records import BatchProducer
from tests.simulation.world.broker import NodeOnDisk
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.unit.broker.harness import batch

SEEDS = int(os.environ.get("OTTLA_POWER_CUTS", "12"))
CUTS = 4
DURABLE, LOOSE, BRIEF = "durable", "loose", "brief"
# Rolls after a few batches, because the index is full.
ROLLING = {"segment_index_bytes": 40, "index_interval_bytes": 0, "retention_ms": -1}
RETAINED = 600


class Story:
    """The sent and the acknowledged records, on a disk with repeated power cuts."""

    def __init__(self, seed: int, home: Path) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.home = home
        home.mkdir()
        # All records sent, by topic; the number of those acknowledged; the offsets that a group committed.
        self.sent: dict[str, list[bytes]] = {DURABLE: [], LOOSE: [], BRIEF: []}
        self.answered: dict[str, int] = {DURABLE: 0, LOOSE: 0, BRIEF: 0}
        self.deleted_to = 0
        self.committed = -1
        self.committing = -1
        self.topics: set[str] = set()
        self.in_doubt: set[str] = set()
        self.node: NodeOnDisk

    async def start(self) -> None:
        self.node = NodeOnDisk(
            self.disk,
            self.home,
            log_flush_interval_messages=1,  # this includes the offsets of groups
            metadata_log_max_record_bytes_between_snapshots=500,
            **{"transaction.state.log.min.isr": 1},
        )
        await self.node.start()

    async def set_up(self) -> None:
        await self.start()
        await self.node.create(DURABLE, **ROLLING)
        await self.node.create(LOOSE, flush_messages=1 << 60, **ROLLING)
        await self.node.create(BRIEF, **ROLLING, retention_bytes=RETAINED)

    async def live(self, steps: int) -> None:
        for _ in range(steps):
            await self.step(self.random.random())
            self.node.check()

    async def step(self, choice: float) -> None:
        node = self.node
        if choice < 0.35:
            await self.append(DURABLE)
        elif choice < 0.45:
            await self.append(BRIEF)
        elif choice < 0.65:
            await self.append(LOOSE)
        elif choice < 0.75:
            self.committing = max(self.committing, self.answered[DURABLE])
            assert await node.commit("g", DURABLE, self.committing) == 0
            self.committed = self.committing
        elif choice < 0.85:
            node.chores()
            await asyncio.sleep(0)
        elif choice < 0.9:
            await self.change_topics()
        elif self.answered[DURABLE] > 3:
            offset = self.random.randrange(self.answered[DURABLE] - 2)
            partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
            topics = [DeleteRecordsTopic(name=DURABLE, partitions=partitions)]
            self.deleted_to = max(self.deleted_to, offset)
            await node.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)

    async def append(self, topic: str) -> None:
        sent = self.sent[topic]
        count = self.random.choice((1, 1, 3))
        values = [b"%d:%s" % (len(sent) + i, b"x" * self.random.randrange(60)) for i in range(count)]
        first = len(sent)
        sent += values
        now_ms = self.node.clock.wall_ms()
        data = batch(*values, producer=BatchProducer(7, 0, first), timestamp=now_ms)
        answer = await self.node.produce(topic, data)
        assert answer == (0, first)
        self.answered[topic] = len(sent)

    async def change_topics(self) -> None:
        if self.topics and self.random.random() < 0.4:
            name = self.random.choice(sorted(self.topics))
            self.topics.discard(name)
            self.in_doubt.add(name)
            await self.node.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
        else:
            name = f"t{self.random.randrange(1000)}"
            if name in self.topics | self.in_doubt:
                return
            self.in_doubt.add(name)
            await self.node.create(name)
            self.topics.add(name)
        self.in_doubt.discard(name)

    async def cut(self) -> None:
        """Cut the power, and restart the broker without manual repair."""
        self.node.problem = None
        after = self.disk.crash()
        self.disk.crash_after = None
        await self.node.abandon()
        self.disk = after
        await self.start()
        await self.check()

    async def check(self) -> None:
        for topic, sent in self.sent.items():
            log = self.node.node.broker.partitions.get(topic, 0).log
            first, end = log.log_start_offset, log.log_end_offset
            if topic == BRIEF:
                assert not first or log.size >= RETAINED, f"retention took too much: {log.size} bytes are left"
            else:
                assert first <= (self.deleted_to if topic == DURABLE else 0), f"{topic} begins at {first}"
            found, refused = await self.node.read(topic, first)
            assert not refused, f"{topic}: wrong CRCs at {refused}"
            assert found == {offset: sent[offset] for offset in range(first, end)}, f"{topic}: not what was sent"
            if topic != LOOSE:
                assert end >= self.answered[topic], "what was answered is there"
            if end > first:
                known = {producer.producer_id: producer.last_sequence for producer in log.active_producers()}
                assert known == {7: end - 1}, "so that nothing is doubled"
            del sent[end:]
            self.answered[topic] = len(sent)
        committed = (await self.node.committed("g")).get((DURABLE, 0), -1)
        assert self.committed <= committed <= self.committing
        self.committed = self.committing = committed
        names = set(self.node.node.broker.metadata.image.topics_by_name) - {"__consumer_offsets", *self.sent}
        assert self.topics <= names <= self.topics | self.in_doubt
        self.topics, self.in_doubt = names, set()


async def _lives(story: Story) -> None:
    await story.set_up()
    for _ in range(CUTS):
        story.disk.crash_after = story.random.randrange(150) if story.random.random() < 0.7 else None
        try:
            await story.live(40)
        except Crash:
            pass
        except KafkaError as error:
            if not isinstance(error.__cause__, Crash):
                raise
        await story.cut()
        if story.random.random() < 0.3:
            await story.node.stop()
            await story.start()
            await story.check()


async def _tell(story: Story) -> None:
    try:
        await _lives(story)
    finally:
        await story.node.abandon()


async def _first_start(disk: SimulatedDisk, home: Path) -> NodeOnDisk:
    node = NodeOnDisk(disk, home)
    try:
        await node.start()
    except BaseException:
        await node.abandon()
        raise
    return node


async def _cut_first_starts(home: Path) -> int:
    home.mkdir()
    for moment in range(1000):
        disk = SimulatedDisk(moment)
        disk.make_directory(str(home.parent))
        disk.crash_after = moment
        try:
            node = await _first_start(disk, home)
        except (Crash, KafkaError) as error:
            if not (isinstance(error, Crash) or isinstance(error.__cause__, Crash)):
                raise
        else:
            await node.abandon()
            return moment
        node = await _first_start(disk.crash(), home)
        await node.create("t")
        assert await node.produce("t", batch(b"it serves")) == (0, 0)
        node.check()
        await node.abandon()
    raise AssertionError("a start has no end")


async def _killed_and_cut(home: Path, seed: int) -> None:
    disk = SimulatedDisk(seed)
    home.mkdir()
    node = NodeOnDisk(disk, home, log_flush_interval_messages=1)
    await node.start()
    await node.create("t")
    data = batch(b"sent again", producer=BatchProducer(7, 0, 0), timestamp=node.clock.wall_ms())
    node.node.broker.partitions.get("t", 0).append(memoryview(bytearray(data)))
    node.node.broker.logs.abandon()  # before the sync: no append was acknowledged
    await node.abandon()
    node = NodeOnDisk(disk, home, log_flush_interval_messages=1)
    await node.start()
    assert await node.produce("t", data) == (0, 0), "it is known"
    after = disk.crash()
    await node.abandon()
    node = NodeOnDisk(after, home, log_flush_interval_messages=1)
    await node.start()
    assert await node.read("t") == ({0: b"sent again"}, [])
    await node.abandon()


@pytest.mark.parametrize("seed", range(6))
def test_batches_resent_after_a_kill_survive_a_power_cut(tmp_path: Path, seed: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(_killed_and_cut(tmp_path / "data", seed))


def test_start_interrupted_at_any_moment_is_repeated(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        moments = runner.run(_cut_first_starts(tmp_path / "data"))
    assert moments > 10, "it writes more than that"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_survive_a_power_cut_of_the_broker(tmp_path: Path, seed: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(_tell(Story(seed, tmp_path / "data")))
