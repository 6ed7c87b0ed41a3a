"""Topics of a few names are created, deleted, extended and changed under power cuts, kills and stops.

Acknowledged state exists afterwards: records, settings, numbers of partitions, and a group's offsets until their
topic or group is deleted. No topic has the state of its predecessor, and no producer id is assigned twice. An operation
without a response has either taken effect completely or not at all.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import KafkaError
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.simulation.world.broker import NodeOnDisk
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.unit.broker.harness import batch

SEEDS = int(os.environ.get("OTTLA_POWER_CUTS", "10"))
LIVES, STEPS = 6, 60
TOPIC = 2
LIMIT = "max.message.bytes"
ROLLING = {"segment_index_bytes": 40, "index_interval_bytes": 0}
BLOCK = 1000


@dataclass
class Topic:
    """The test's knowledge of a topic; `sent` may have one more than `answered` in a partition."""

    partitions: int
    limit: str | None = None
    sent: dict[int, list[bytes]] = field(default_factory=dict)
    answered: dict[int, int] = field(default_factory=dict)


@dataclass
class Known:
    """The knowledge of a client: topics by name, and the offsets of one group by topic and partition."""

    topics: dict[str, Topic] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def without(self, topic: str) -> Known:
        topics = {name: each for name, each in self.topics.items() if name != topic}
        return Known(topics, {key: offset for key, offset in self.offsets.items() if key[0] != topic})

    def changed(self, topic: str, **what: Any) -> Known:
        return Known({**self.topics, topic: Topic(**{**vars(self.topics[topic]), **what})}, self.offsets)

    def shape(self) -> tuple[object, object]:
        return {name: (each.partitions, each.limit) for name, each in self.topics.items()}, self.offsets


class Story:
    def __init__(self, seed: int, home: Path) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.home = home
        home.mkdir()
        self.known = Known()
        # The state if the last request, which was not answered, was executed nevertheless.
        self.perhaps = self.known
        self.producer_ids: set[int] = set()
        self.node: NodeOnDisk

    async def start(self) -> None:
        settings = {"log_flush_interval_messages": 1, "metadata_log_max_record_bytes_between_snapshots": 700}
        self.node = NodeOnDisk(self.disk, self.home, **settings)
        await self.node.start()

    async def ask(self, request: Any, version: int, then: Known) -> Any:
        self.perhaps = then
        answer = await self.node.ask(request, version)
        self.known = then
        return answer

    async def step(self) -> None:
        name = self.random.choice("abc")
        if name not in self.known.topics:
            count = self.random.randint(1, 3)
            self.perhaps = Known({**self.known.topics, name: Topic(count)}, self.known.offsets)
            await self.node.create(name, count, **ROLLING)
            self.known = self.perhaps
            return
        deeds: tuple[Callable[[str], Coroutine[Any, Any, None]], ...] = (
            *(self.produce,) * 6,
            *(self.commit,) * 3,
            *(self.delete,) * 3,
            self.grow,
            self.limit,
            self.new_producers,
            self.delete_group,
            self.chores,
        )
        await self.random.choice(deeds)(name)
        self.node.check()

    async def produce(self, name: str) -> None:
        topic = self.known.topics[name]
        index = self.random.randrange(topic.partitions)
        sent = topic.sent.setdefault(index, [])
        sent.append(b"%d" % self.random.getrandbits(60))
        assert await self.node.produce(name, batch(sent[-1], timestamp=self.node.clock.wall_ms()), index) == (
            0,
            len(sent) - 1,
        )
        topic.answered[index] = len(sent)

    async def commit(self, name: str) -> None:
        index = self.random.randrange(self.known.topics[name].partitions)
        offset = self.random.randrange(100)
        self.perhaps = Known(self.known.topics, {**self.known.offsets, (name, index): offset})
        assert await self.node.commit("g", name, offset, index) == 0
        self.known = self.perhaps

    async def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        assert (await self.ask(request, 5, self.known.without(name))).responses[0].error_code == 0

    async def grow(self, name: str) -> None:
        count = self.known.topics[name].partitions + 1
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=None)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=1000)
        assert (await self.ask(request, 3, self.known.changed(name, partitions=count))).results[0].error_code == 0

    async def limit(self, name: str) -> None:
        limit = str(self.random.randrange(1000, 100_000))
        resource = AlterConfigsResource(TOPIC, name, [AlterableConfig(LIMIT, 0, limit)])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert (await self.ask(request, 1, self.known.changed(name, limit=limit))).responses[0].error_code == 0
        self.check_limits()

    def check_limits(self) -> None:
        for name, topic in self.known.topics.items():
            for index in range(topic.partitions if topic.limit is not None else 0):
                rules = self.node.node.broker.partitions.get(name, index).settings.rules
                assert str(rules.max_message_bytes) == topic.limit

    async def new_producers(self, _name: str) -> None:
        for _ in range(self.random.choice((1, 1, 3, BLOCK * 2 // 3))):
            answer = await self.node.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
            assert answer.error_code == 0
            assert answer.producer_id not in self.producer_ids, "it was given before"
            self.producer_ids.add(answer.producer_id)

    async def delete_group(self, _name: str) -> None:
        if not self.known.offsets:
            return
        await self.node.committed("g")  # this loads the group
        answer = await self.ask(DeleteGroupsRequest(groups_names=["g"]), 2, Known(self.known.topics))
        assert answer.results[0].error_code == 0

    async def chores(self, _name: str) -> None:
        self.node.chores()
        await asyncio.sleep(0)

    async def end(self) -> None:
        self.node.problem = None
        cut = self.disk.crash_after is not None or self.random.random() < 0.4
        after = self.disk.crash() if cut else self.disk
        self.disk.crash_after = None
        if cut or self.random.random() < 0.5:
            await self.node.abandon()
        else:
            await self.node.stop()
        self.disk = after

    async def check(self) -> None:
        image = self.node.node.broker.metadata.image
        names = image.topics_by_name.keys() - {"__consumer_offsets"}
        offsets = await self.node.committed("g")
        found = {
            name: (len(image.topics_by_name[name].partitions), image.config(TOPIC, name).get(LIMIT)) for name in names
        }
        states = [each for each in (self.known, self.perhaps) if each.shape() == (found, offsets)]
        assert states, f"{found}, {offsets} is neither {self.known.shape()} nor {self.perhaps.shape()}"
        self.known = self.perhaps = states[0]
        self.check_limits()
        for name, topic in self.known.topics.items():
            for index in range(topic.partitions):
                sent = topic.sent.setdefault(index, [])
                records, refused = await self.node.read(name, 0, index)
                assert not refused
                assert list(records.values()) == sent[: len(records)], f"{name}-{index} has what is not its own"
                assert len(records) >= topic.answered.get(index, 0), f"{name}-{index} lost what was answered"
                del sent[len(records) :]
                topic.answered[index] = len(sent)


async def _tell(story: Story) -> None:
    await story.start()
    try:
        for _ in range(LIVES):
            story.disk.crash_after = story.random.randrange(20, 400) if story.random.random() < 0.6 else None
            try:
                for _ in range(STEPS):
                    await story.step()
            except Crash:
                pass
            except KafkaError as error:
                if not isinstance(error.__cause__, Crash):
                    raise
            await story.end()
            await story.start()
            await story.check()
    finally:
        await story.node.abandon()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_topics_keep_their_own_state_after_every_crash(tmp_path: Path, seed: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(_tell(Story(seed, tmp_path / "data")))
