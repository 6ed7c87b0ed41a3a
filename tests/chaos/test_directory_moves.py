"""Moves between the log directories of a broker that is killed at random moments of them (KIP-113): nothing is lost.

One topic has its only replicas on the broker that is killed, so that no other broker can hide a loss. The replicas of
the other topic are moved as leaders and as followers. `OTTLA_CHAOS_MINUTES` is the duration, `OTTLA_CHAOS_SEED` the
moments of the kills.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from ottla.clients import Consumer, TopicPartition
from ottla.clients.admin import NewTopic
from ottla.clients.errors import ClientError
from ottla.network.client import ClientConnection
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.chaos.load import Load, Own
from tests.cluster.processes import Cluster

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.1")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "1"))
KILLED = 2
ALONE, PAIR = "alone", "pair"
ASSIGNMENTS = {ALONE: {0: [2], 1: [2], 2: [2]}, PAIR: {0: [1, 2], 1: [2, 1]}}
WAIT_S = 60.0
SETTINGS = {
    # A move takes about a second, so that many kills hit one.
    "replica.alter.log.dirs.io.max.bytes.per.second": 1_000_000,
    "alter.log.dirs.replication.quota.window.num": 2,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.segment.delete.delay.ms": 100,
}


class World:
    """Two brokers, the second with two log directories, and writers to both topics."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory / "cluster", brokers=2, properties=SETTINGS)
        node = self.cluster.nodes[KILLED]
        self.directories = [str(node.data), str(node.directory / "disk")]
        node.settings["log.dirs"] = ",".join(self.directories)
        self.partitions = [TopicPartition(topic, index) for topic in ASSIGNMENTS for index in ASSIGNMENTS[topic]]
        self.loads: list[Load] = []

    def start(self) -> None:
        self.cluster.start()
        configs = {"min.insync.replicas": "1", "index.interval.bytes": "0", "segment.index.bytes": "240"}
        with self.cluster.admin() as admin:
            admin.create_topics(
                [NewTopic(name, assignments=each, config=configs) for name, each in ASSIGNMENTS.items()]
            )
        self.loads = [Own(self.cluster.bootstrap, topic, len(each)) for topic, each in ASSIGNMENTS.items()]
        for load in self.loads:
            load.start()

    def move(self, targets: dict[TopicPartition, str]) -> None:
        """Begin moves; replicas that the broker has not opened yet move later or not at all."""
        dirs = [
            AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(each.topic, [each.partition])])
            for each, path in targets.items()
        ]

        async def ask() -> None:
            host, port = self.cluster.nodes[KILLED].bootstrap.split(":")
            connection = await ClientConnection.connect(host, int(port), client_id="test", timeout_s=WAIT_S)
            await connection.send(AlterReplicaLogDirsRequest(dirs=dirs), timeout_s=WAIT_S)
            connection.close()
            await connection.wait_lost(WAIT_S)

        asyncio.run(ask())

    def places(self) -> tuple[dict[TopicPartition, str], set[TopicPartition]]:
        """The directory of each replica of the killed broker, and the replicas that are moving."""
        with self.cluster.admin() as admin:
            (found,) = admin.describe_log_dirs([KILLED]).values()
        present = {
            partition: each.path
            for each in found
            for partition, replica in each.replicas.items()
            if partition in self.partitions and not replica.is_future
        }
        copies = {each for directory in found for each, replica in directory.replicas.items() if replica.is_future}
        return present, copies

    def is_moving(self) -> bool:
        try:
            return bool(self.places()[1])
        except ClientError:  # the other broker has not heard of the restart yet
            return False

    def finish(self) -> list[str]:
        """Stop the writers; returns what they found wrong."""
        for load in self.loads:
            load.finish()
        return [failure for load in self.loads for failure in load.failures]

    def check(self, load: Load) -> None:
        """Every acknowledged record is there once, in order and at its offset."""
        assert load.total() == sum(load.sent) > 0
        settings = {"bootstrap.servers": self.cluster.bootstrap, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            for index, acknowledged in enumerate(load.acknowledged):
                partition = TopicPartition(load.topic, index)
                consumer.assign([partition])
                end = consumer.end_offsets([partition])[partition]
                values: dict[int, int] = {}
                deadline = time.monotonic() + WAIT_S
                while len(values) < end and time.monotonic() < deadline:
                    for record in consumer.poll(timeout_s=0.2):
                        assert record.offset == len(values)
                        values[int(record.value[:12])] = record.offset
                assert values == acknowledged
                assert list(values) == list(range(len(values)))


@pytest.mark.timeout(SECONDS + 240)
def test_kills_in_the_middle_of_moves_lose_nothing(tmp_path: Path) -> None:
    chance, world = random.Random(SEED), World(tmp_path)
    cluster = world.cluster
    kills = kills_in_moves = 0
    try:
        world.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or kills_in_moves < 2:
            assert kills < 100 + SECONDS, "no kill hits a move"
            world.move({each: chance.choice(world.directories) for each in world.partitions})
            time.sleep(chance.uniform(0.0, 1.0))
            kills_in_moves += world.is_moving()
            kills += 1
            cluster.kill(KILLED)
            cluster.start_node(KILLED)
        goal = dict.fromkeys(world.partitions, world.directories[1])
        cluster.wait_until(lambda: world.places()[0].keys() == goal.keys(), WAIT_S)
        world.move(goal)
        cluster.wait_until(lambda: world.places() == (goal, set()), WAIT_S)
        failures = world.finish()
        assert failures == []
        for load in world.loads:
            world.check(load)
        assert cluster.stop_node(KILLED) == 0
        left = {
            entry.name for path in world.directories for entry in Path(path).iterdir() if entry.name.endswith("-future")
        }
        assert left == set()
        cluster.assert_no_traceback()
    except BaseException:
        for node in cluster.nodes.values():
            print(f"node {node.node_id}:\n{node.log_tail(limit=8_000)}")
        raise
    finally:
        world.finish()
        cluster.close()
    print(f"{kills} kills, {kills_in_moves} of them during a move")
