"""Idempotent producers and replicated logs: each acknowledged record is there once, in order; a failure names its seed.

The producers' cores and the logs are the real ones. `OTTLA_SEEDS=2000 pytest tests/simulation/test_exactly_once.py`
runs more seeds.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.simulation.test_controllers import Administrator, break_something
from tests.simulation.test_replication import harm_leader, harm_storage
from tests.simulation.world.cluster_producer import ClusterProducer
from tests.simulation.world.committed import contents
from tests.simulation.world.quorum_parts import Faults, Setup
from tests.simulation.world.replication import ReplicatedCluster

SEEDS = int(os.environ.get("OTTLA_SEEDS", "12"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_appear_once_and_in_order(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int) -> ReplicatedCluster:
    """A run of 40 faults under two producers, and the healing."""
    choice = Random(~seed)
    setup = Setup(3, observers=choice.randint(0, 1))
    late = choice.choice([0.0, 0.3])
    cluster = ReplicatedCluster(seed, setup, Faults(), power_cuts=choice.choice([0.0, 0.5]), late_proposals=late)
    administrator = Administrator(cluster, most_topics=2, unclean=0.0)
    producers = [ClusterProducer(cluster, name) for name in "ab"]
    cluster.run(700)
    administrator.create()
    cluster.run(300)
    for _ in range(40):
        chance = cluster.random.random()
        if chance < 0.1:
            administrator.change()
        elif chance < 0.3:
            harm_storage(cluster)
        elif chance < 0.75:
            harm_leader(cluster)
        else:
            break_something(cluster)
        for _ in range(cluster.random.randint(1, 5)):
            write(cluster, producers)
            cluster.run(cluster.random.randint(1, 120))
        if cluster.random.random() < 0.4:
            cluster.blocked = set()
            cluster.start_all()
    check_recovery(cluster, producers)
    return cluster


def write(cluster: ReplicatedCluster, producers: list[ClusterProducer]) -> None:
    """Let the producers send some records."""
    topics = list(cluster.history.image.topics_by_name.values())
    for producer in producers:
        for _ in range(cluster.random.randint(0, 3) if topics else 0):
            topic = cluster.random.choice(topics)
            producer.send(topic.name, cluster.random.choice(list(topic.partitions)))


def check_recovery(cluster: ReplicatedCluster, producers: list[ClusterProducer]) -> None:
    """Without faults, every record gets an outcome, and the logs have what was acknowledged."""
    for node, broker in list(cluster.brokers.items()):
        if broker.offline:
            cluster.crash(node)
    cluster.heal()
    for _ in range(80):
        cluster.run(500)
        cluster.start_all()
        problem = cluster.unsettled()
        pending = sum(producer.pending for producer in producers)
        if problem is None and not pending:
            break
    else:
        pytest.fail(cluster.checks.fail(f"not settled after 40 s: {problem}, {pending} records without an outcome"))
    cluster.run(500)
    cluster.check_equal()
    for topic in cluster.history.image.topics_by_name.values():
        for index in topic.partitions:
            check_partition(cluster, producers, topic.name, index)


def check_partition(cluster: ReplicatedCluster, producers: list[ClusterProducer], topic: str, index: int) -> None:
    """Each record appears at most once and in order, and each acknowledged record appears."""
    image = cluster.history.image.topics_by_name[topic]
    known = cluster.committed.partitions[image.topic_id, index]
    log = cluster.stores[image.partitions[index].leader].replicas[image.topic_id, index].log
    found = [value for _, value in contents(log, log.log_start_offset, log.log_end_offset)]
    for producer in producers:
        sent = producer.sent.get((topic, index), [])
        own = [value for value in found if value is not None and value.startswith(f"{producer.name}-".encode())]
        text = cluster.checks.fail(f"{topic}-{index} of producer {producer.name}: sent {sent}, found {own}")
        if known.losses:
            continue  # The log has lost what it knew of the producer.
        assert own == [value for value in sent if value in own], f"doubled or out of order: {text}"
        lost = [value for value in sent if value in producer.acknowledged and value not in own]
        assert not lost, f"lost {lost}: {text}"
