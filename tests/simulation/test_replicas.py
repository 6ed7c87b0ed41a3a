"""Three brokers replicate a partition while nodes are killed, lose power, or are cut off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.broker.handlers import fetch
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.controller.partition_change import Election, Target
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.simulation.world.replicas import TOPIC, TOPIC_ID, Context, ReplicaWorld, contents, values_of
from tests.unit.broker.harness import Connection

SEEDS = range(int(os.environ.get("OTTLA_SEEDS", "25")))


@contextmanager
def world_of(seed: int, *, min_isr: int = 1) -> Iterator[ReplicaWorld]:
    world = ReplicaWorld(seed, min_isr=min_isr)
    asyncio.events._set_running_loop(world.loop)  # type: ignore[arg-type]
    try:
        yield world
    finally:
        asyncio.events._set_running_loop(None)
        for node in world.nodes.values():
            if node.up:
                node.kill(loses_page_cache=False)


def settle(world: ReplicaWorld) -> None:
    """Repair everything, and let the nodes replicate."""
    world.heal()
    for node_id in world.nodes:
        world.start(node_id)
    for _ in range(10):
        world.run(1_000)
        world.check_lag()


def check(world: ReplicaWorld) -> None:
    """All logs are equal and contain each acknowledged record once, in order."""
    logs = {node_id: contents(node.log) for node_id, node in world.nodes.items()}
    assert logs[1] == logs[2] == logs[3], {node_id: values_of(data)[-5:] for node_id, data in logs.items()}
    assert sorted(world.partition.isr) == [1, 2, 3]
    found = values_of(logs[1])
    starts = dict(found)
    for value, offset in world.acknowledged.items():
        assert starts.get(offset, b"").startswith(value), f"{value!r} was acknowledged at offset {offset}"
    marks = {node.log.high_watermark for node in world.nodes.values()}
    assert marks == {world.nodes[1].log.log_end_offset}


def test_records_are_acknowledged_when_all_replicas_have_them() -> None:
    with world_of(1) as world:
        for _ in range(20):
            world.produce(1)
        assert not world.acknowledged
        world.run(500)
        assert len(world.acknowledged) == 20
        settle(world)
        check(world)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("min_isr", [1, 2])
def test_acknowledged_records_survive_failures(seed: int, min_isr: int) -> None:
    with world_of(seed, min_isr=min_isr) as world:
        random = world.random
        for _ in range(120):
            node_id = random.choice((1, 2, 3))
            event = random.random()
            if event < 0.6:
                for each in world.nodes:
                    world.produce(each)
            elif event < 0.68:
                world.kill(node_id, power=False)
            elif event < 0.74:
                world.kill(node_id, power=True)
            elif event < 0.84:
                world.start(node_id)
            elif event < 0.9:
                world.isolate(node_id)
            else:
                world.heal()
            world.run(random.choice((0, 1, 5, 20, 100, 400)))
            world.check_lag()
        settle(world)
        check(world)
        acknowledged = len(world.acknowledged)
        world.produce(world.partition.leader)
        world.run(1_000)
        assert len(world.acknowledged) == acknowledged + 1


def test_leader_after_an_unclean_election_decides_what_the_others_have() -> None:
    with world_of(3) as world:
        world.produce(1)
        world.run(300)
        world.kill(2, power=False)
        world.run(300)
        for _ in range(30):
            world.produce(1)
        world.run(3_000)
        world.kill(3, power=False)
        world.check_lag()
        world.run(300)
        world.kill(1, power=False)
        world.acknowledged.clear()  # those in the ISR of 1 alone are lost
        world.epochs[2] += 1
        world.fenced.discard(2)
        world.change(Target(), Election.UNCLEAN)
        world.publish()
        world.nodes[2].start()
        world.run(300)
        assert world.partition.leader == 2
        for _ in range(3):
            world.produce(2)
        settle(world)
        check(world)
        assert len(values_of(contents(world.nodes[1].log))) < 30


def test_follower_without_the_start_of_the_leaders_log_starts_over() -> None:
    with world_of(4) as world:
        world.kill(3, power=False)
        for _ in range(200):
            world.produce(1)
            world.run(20)
        leader = world.nodes[1].leads
        assert leader is not None
        leader.delete_records_before(-1)
        for _ in range(5):
            leader.log.delete_old_segments(world.loop.wall_ms())
        assert leader.log.segments[0].base_offset > 0
        for _ in range(5):
            world.produce(1)
        settle(world)
        assert {node.log.log_start_offset for node in world.nodes.values()} == {leader.log.log_start_offset}
        world.acknowledged = {k: v for k, v in world.acknowledged.items() if v >= leader.log.log_start_offset}
        check(world)


def test_one_append_costs_one_fetch_of_each_follower() -> None:
    with world_of(5) as world:
        world.run(1_000)
        sent = []
        for node in world.nodes.values():
            for fetchers in node.fetchers._fetchers.values():
                for fetcher in fetchers:
                    channel = fetcher._channel
                    if channel is not None:
                        real = channel.send
                        channel.send = lambda *a, real=real, **k: (sent.append(a), real(*a, **k))[1]  # type: ignore[method-assign]
        world.produce(1)
        world.run(70)
        assert len(world.acknowledged) == 1
        assert len(sent) <= 4, "two followers: one fetch after the records, and one may have waited its time"


def test_follower_of_a_new_leader_retains_acknowledged_records_above_its_high_watermark() -> None:
    """KIP-101: it may lead next, before it has fetched from that leader."""
    for seed in range(20):
        with world_of(seed) as world:
            for _ in range(10):
                world.produce(1)
                world.run(50)
            acknowledged = len(world.acknowledged)
            world.kill(1, power=False)
            leader, follower = sorted((2, 3), key=lambda each: each != world.partition.leader)
            for _ in range(100):
                if world.nodes[follower].image.offset == world.image.offset:
                    break
                world.run(1)
            world.kill(leader, power=False)
            world.run(100)
            settle(world)
            check(world)
            assert len(world.acknowledged) == acknowledged


def test_replica_that_is_removed_deletes_its_log_and_one_that_is_added_copies_it() -> None:
    with world_of(6) as world:
        for _ in range(5):
            world.produce(1)
        world.run(300)
        image = world.partition
        world.partition = image._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=image.partition_epoch + 1)
        world.publish()
        world.run(300)
        assert world.nodes[3].logs.get(TopicPartition(TOPIC, 0)) is None
        assert not world.nodes[3].disk.exists(f"/logs/{TOPIC}-0")
        world.produce(1)
        world.run(300)
        image = world.partition
        world.partition = image._replace(replicas=(1, 2, 3), partition_epoch=image.partition_epoch + 1)
        world.publish()
        settle(world)
        check(world)
        assert len(world.acknowledged) == 6


def test_partition_without_a_leader_is_not_served_and_continues_with_the_next_leader() -> None:
    with world_of(7) as world:
        world.produce(1)
        world.run(300)
        image = world.partition
        world.partition = image._replace(leader=-1, leader_epoch=1, partition_epoch=image.partition_epoch + 1)
        world.publish()
        world.run(300)
        assert [node.leads for node in world.nodes.values()] == [None, None, None]
        world.change(Target())
        world.publish()
        world.run(300)
        world.produce(1)
        settle(world)
        check(world)
        assert len(world.acknowledged) == 2


def consume(world: ReplicaWorld, node_id: int, offset: int) -> Completion[FetchResponse]:
    """Fetch as a consumer does, of a replica on any node."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])])
    answer: Any = fetch.handle(world.nodes[node_id], Context(Connection(), 13), request)  # type: ignore[arg-type]
    return answer if isinstance(answer, Completion) else Completion.of(answer)


def test_consumer_reads_committed_records_of_a_follower_and_waits_for_more() -> None:
    with world_of(8) as world:
        world.produce(1)
        world.run(500)
        read = consume(world, 2, 0).result().responses[0].partitions[0]
        assert (read.error_code, read.high_watermark) == (0, 1)
        assert len(values_of(bytes(read.records or b""))) == 1
        waiting = consume(world, 2, 1)
        world.run(50)
        assert not waiting.done
        world.produce(1)
        world.run(300)
        read = waiting.result().responses[0].partitions[0]
        assert [offset for offset, _ in values_of(bytes(read.records or b""))] == [1]
        waiting = consume(world, 2, 2)
        world.kill(1, power=False)
        world.run(1_100)
        assert waiting.done
        assert waiting.result().responses[0].partitions[0].error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize("seed", [18, 40, 156, 180])
def test_follower_syncs_a_truncation_before_it_appends(seed: int) -> None:
    """Otherwise a power cut can leave a dropped batch between later ones."""
    with world_of(seed) as world:
        world.run(300)
        world.isolate(1)
        for _ in range(4):
            world.produce(1)  # not acknowledged, and dropped later
        world.run(300)
        for _ in range(6):
            world.produce(world.partition.leader)
        world.run(300)
        world.heal()
        world.run(300)
        world.kill(1, power=True)
        world.start(1)
        settle(world)
        check(world)
