"""A mirror between two clusters of three real nodes each, whose nodes are killed at random (kill -9).

Idempotent and transactional producers write to the source meanwhile. After each round, every replica of the target has
the bytes of the source up to its end. A node of the target is also killed during the planned promotion; then the target
has every acknowledged record once, in order, and whole transactions. `OTTLA_CHAOS_MINUTES` sets the number of rounds,
`OTTLA_CHAOS_SEED` the choice of the nodes and moments.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Producer
from ottla.clients.admin import ConfigResource, ResourceType
from ottla.common.ids import TopicPartition
from tests.cluster.processes import Cluster, ClusterNode

from .cluster_load import (
    PARTITIONS,
    TIMEOUT_S,
    TOPIC,
    IdempotentWriter,
    LibrdkafkaWriter,
    TransactionalWriter,
    Writer,
    check,
    finish,
    stored,
)

MINUTES = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0"))
ROUNDS = 3 + int(MINUTES * 12)
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
MIRROR, GROUP = "dr", "readers"
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "log.segment.bytes": 1 << 20,
}


class Faults:
    """Kills nodes of both clusters, and starts them again."""

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source, self._target = source, target
        self._random = random.Random(SEED)
        self.done: Counter[str] = Counter()

    def one(self) -> None:
        """A random fault, from its begin to its end."""
        fault = self._random.choice([self.source_node, self.target_node, self.one_of_each, self.whole_target])
        self.done[fault.__name__] += 1
        fault()

    def source_node(self) -> None:
        self._kill(self._any(self._source))

    def target_node(self) -> None:
        self._kill(self._any(self._target))

    def one_of_each(self) -> None:
        self._kill(self._any(self._source), self._any(self._target))

    def whole_target(self) -> None:
        self._kill(*self._target.nodes.values())

    def _any(self, cluster: Cluster) -> ClusterNode:
        return self._random.choice(list(cluster.nodes.values()))

    def _kill(self, *nodes: ClusterNode) -> None:
        for node in nodes:
            node.kill()
            time.sleep(self._random.uniform(0, 0.3))
        time.sleep(self._random.uniform(0, 1.5))
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        time.sleep(self._random.uniform(0, 1.0))


def log_of(node: ClusterNode, partition: int) -> bytes:
    """The bytes of a replica. A segment that grows or begins meanwhile is read in part."""
    return b"".join(path.read_bytes() for path in sorted((node.data / f"{TOPIC}-{partition}").glob("*.log")))


def check_copies(source: Cluster, target: Cluster) -> None:
    """Each replica of the target has the bytes that two replicas of the source begin with.

    Only committed records are copied, and two of three replicas of the source have those at any time.
    """
    for partition in range(PARTITIONS):
        copies = {node.node_id: log_of(node, partition) for node in target.nodes.values()}
        originals = [log_of(node, partition) for node in source.nodes.values()]
        for node_id, copy in copies.items():
            having = sum(each.startswith(copy) for each in originals)
            sizes = list(map(len, originals))
            assert having >= 2, f"replica {node_id} of {TOPIC}-{partition}: {len(copy)} bytes differ from {sizes}"


def set_state(target: Cluster, state: str) -> None:
    with target.admin() as admin:
        admin.alter_config(ConfigResource(ResourceType.MIRROR, MIRROR), {"state": state})


def promote(target: Cluster) -> None:
    """Promote a paused mirror, which is resumed meanwhile. Then a node is killed.

    That may interrupt the command, which is repeated.
    """
    chance = random.Random(SEED)

    def resume_and_kill() -> None:
        time.sleep(chance.uniform(0.3, 1.0))
        set_state(target, "RUNNING")
        time.sleep(chance.uniform(0, 1.0))
        node_id = chance.choice(list(target.nodes))
        target.kill(node_id)
        target.start_node(node_id)

    fault = threading.Thread(target=resume_and_kill, daemon=True)
    fault.start()
    deadline, output = time.monotonic() + 2 * TIMEOUT_S, io.StringIO()
    while True:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            if main(["mirror", "promote", MIRROR, "--yes", "-b", target.bootstrap]) == 0:
                break
        assert time.monotonic() < deadline, output.getvalue()
        time.sleep(0.2)
    fault.join(TIMEOUT_S)
    assert not fault.is_alive()


def write_to_target(target: Cluster) -> None:
    """A program of the source goes on at the target, with its transactional id."""
    with Producer(bootstrap_servers=target.bootstrap, transactional_id="transactions") as producer:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, f"target:{partition}".encode(), partition=partition)
        producer.commit_transaction(TIMEOUT_S)


@pytest.mark.long
@pytest.mark.timeout(300 + 60 * MINUTES * 4)
def test_copies_are_equal_and_promotion_loses_nothing_under_kills(tmp_path: Path) -> None:
    source, target = (Cluster(tmp_path / name, properties=SETTINGS) for name in ("source", "target"))
    writers: list[Writer] = []
    try:
        with source, target:
            with source.admin() as admin:
                admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            with target.admin() as admin:
                settings = {"bootstrap.servers": source.bootstrap, "topics": TOPIC, "groups": ".*"}
                settings |= {"refresh.interval.ms": "500"}
                admin.alter_config(ConfigResource(ResourceType.MIRROR, MIRROR), settings)
            writers += [
                IdempotentWriter("ottla", source.bootstrap),
                LibrdkafkaWriter("librdkafka", source.bootstrap),
                TransactionalWriter("transactions", source.bootstrap, SEED),
            ]
            for writer in writers:
                writer.start()
            faults = Faults(source, target)
            for _ in range(ROUNDS):
                time.sleep(0.5)
                faults.one()
                check_copies(source, target)
            # The promotion must wait for what is written now.
            set_state(target, "PAUSED")
            time.sleep(0.5)
            finish(source, writers)
            for writer in writers:
                print(f"{writer.name}: {len(writer.acknowledged)} acknowledged, errors: {writer.problems[:3]}")
                assert len(writer.acknowledged) > 20
            print(f"{ROUNDS} rounds, seed {SEED}, faults: {dict(faults.done)}")
            with source.admin() as admin:
                offsets = {TopicPartition(TOPIC, partition): 10 + partition for partition in range(PARTITIONS)}
                admin.alter_group_offsets(GROUP, offsets)
            promote(target)
            check_promoted(source, target, writers)
            with target.admin() as admin:
                assert {key: each.offset for key, each in admin.list_group_offsets(GROUP).items()} == offsets
            write_to_target(target)
            assert sorted(stored(target.bootstrap)["target"]) == list(range(PARTITIONS))
            source.assert_no_traceback()
            target.assert_no_traceback()
    except (AssertionError, TimeoutError):
        for node in (*source.nodes.values(), *target.nodes.values()):
            print(f"== the log of {node.directory}\n{node.log_tail(limit=3_000)}")
        raise
    finally:
        for writer in writers:
            writer.stop()


def check_promoted(source: Cluster, target: Cluster, writers: list[Writer]) -> None:
    """The copy has all of the source, and only markers behind it; its replicas are equal."""
    brokers = list(target.nodes)
    target.wait_until(
        lambda: all(target.in_sync(TOPIC, partition) == brokers for partition in range(PARTITIONS)), TIMEOUT_S
    )
    for partition in range(PARTITIONS):
        copies = [log_of(node, partition) for node in target.nodes.values()]
        assert len(set(copies)) == 1, f"the replicas of {TOPIC}-{partition} differ: {list(map(len, copies))}"
        original = log_of(source.nodes[source.leader(TOPIC, partition)], partition)
        assert copies[0].startswith(original), f"{TOPIC}-{partition} differs from the source"
        assert len(copies[0]) > len(original), "producers of the source were not removed"
    check(writers, stored(target.bootstrap))
