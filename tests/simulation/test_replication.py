"""Brokers that replicate under crashes, power cuts, partitions, pauses, failing disks; a failure names its seed.

`OTTLA_SEEDS=2000 pytest tests/simulation/test_replication.py` runs more seeds.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ottla.common.errors import KafkaError
from tests.simulation.test_controllers import Administrator, break_something
from tests.simulation.world.metadata_quorum import Callback
from tests.simulation.world.quorum_parts import Faults, Setup
from tests.simulation.world.replication import ReplicatedCluster

SEEDS = int(os.environ.get("OTTLA_SEEDS", "10"))
CLIENT = 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_survive_everything(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int) -> ReplicatedCluster:
    """A run of 100 actions and faults under writers, and the healing."""
    choice = Random(~seed)
    voters = choice.choice([1, 3, 3, 3])
    setup = Setup(voters, observers=choice.randint(0 if voters > 1 else 2, 5 - voters))
    power_cuts, late_proposals = choice.choice([0.0, 0.5, 0.9]), choice.choice([0.0, 0.0, 0.5])
    cluster = ReplicatedCluster(seed, setup, Faults(), power_cuts=power_cuts, late_proposals=late_proposals)
    administrator = Administrator(cluster, most_topics=2, unclean=choice.choice([0.0, 0.0, 0.3]))
    writers = Writers(cluster)
    cluster.run(700)
    for _ in range(60):
        chance = cluster.random.random()
        if chance < 0.15:
            administrator.act()
        elif chance < 0.3:
            harm_storage(cluster)
        elif chance < 0.75:
            harm_leader(cluster)
        else:
            break_something(cluster)
        for _ in range(cluster.random.randint(1, 4)):
            writers.write()
            cluster.run(cluster.random.randint(1, 120))
        if cluster.random.random() < 0.4:
            cluster.blocked = set()
            cluster.start_all()
    check_recovery(cluster, writers)
    return cluster


def harm_storage(cluster: ReplicatedCluster) -> None:
    """Let a disk fail, or let its cache be written back."""
    if not cluster.stores:
        return
    node = cluster.random.choice(list(cluster.stores))
    if cluster.random.random() < 0.3:
        cluster.harm_disk(node)
    else:
        cluster.write_back(node)


def harm_leader(cluster: ReplicatedCluster) -> None:
    """Stop, restart, pause or separate the leader of a partition, in one direction or in both."""
    random = cluster.random
    topics = cluster.history.image.topics_by_id.values()
    leaders = [each.leader for topic in topics for each in topic.partitions.values() if each.leader in cluster.running]
    if not leaders:
        return
    leader = random.choice(leaders)
    others = [node for node in cluster.nodes if node != leader]
    action = random.random()
    if action < 0.4:
        cluster.crash(leader)
        if random.random() < 0.6:
            cluster.start(leader)
    elif action < 0.6:
        cluster.pause(leader, random.randint(100, 1000))
    elif action < 0.8:
        cluster.blocked = {pair for node in others for pair in ((leader, node), (node, leader))}
    else:
        cluster.blocked = {(leader, node) for node in others} if action < 0.9 else {(n, leader) for n in others}


class Writers:
    """Writes batches with acks=all, each once, and remembers what was acknowledged."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self.cluster = cluster
        self.count = 0
        self.acknowledged = 0

    def write(self) -> None:
        """Send some batches to the leaders that a random broker knows."""
        cluster, random = self.cluster, self.cluster.random
        images = [metadata.image for metadata in cluster.metadata.values()]
        if not images:
            return
        image = random.choice(images)
        partitions = [
            ((topic.topic_id, index), partition.leader)
            for topic in image.topics_by_id.values()
            for index, partition in topic.partitions.items()
            if partition.leader >= 0
        ]
        for _ in range(random.randint(1, 4) if partitions else 0):
            key, leader = random.choice(partitions)
            values = [f"v{self.count + i}".encode() for i in range(random.randint(1, 3))]
            self.count += len(values)
            self._send(key, leader, values)

    def _send(self, key: tuple[bytes, int], leader: int, values: list[bytes]) -> None:
        cluster = self.cluster

        def serve(respond: Callback) -> None:
            cluster.produce(leader, key, values, respond)

        def answer(result: int | KafkaError) -> None:
            self.acknowledged += isinstance(result, int)

        cluster.request(CLIENT, leader, serve, answer)


def check_recovery(cluster: ReplicatedCluster, writers: Writers) -> None:
    """Without faults, all replicas become in sync within seconds, and have equal logs with all that is acknowledged."""
    for node, broker in list(cluster.brokers.items()):
        if broker.offline:
            cluster.crash(node)
    cluster.heal()
    for _ in range(60):
        cluster.run(500)
        cluster.start_all()
        problem = cluster.unsettled()
        if problem is None:
            break
    else:
        pytest.fail(cluster.checks.fail(f"not settled after 30 s: {problem}"))
    for _ in range(3):
        writers.write()
        cluster.run(200)
    cluster.run(500)
    cluster.check_equal()
