"""Controllers and brokers under crashes, lost messages, partitions, pauses, voter changes; a failure names its seed.

`OTTLA_SEEDS=2000 pytest tests/simulation/test_controllers.py` runs more seeds.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from ottla.common.errors import KafkaError
from ottla.metadata.image import TopicImage
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.simulation.test_raft import change_voters, cut_power, isolate, tell_leader
from tests.simulation.world.brokers import Broker, BrokerCluster
from tests.simulation.world.quorum_parts import Faults, Setup

SEEDS = int(os.environ.get("OTTLA_SEEDS", "15"))
PREFERRED, UNCLEAN = 0, 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_committed_metadata_survives_everything(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int) -> BrokerCluster:
    """A run of 80 actions and faults, and the healing."""
    choice = Random(~seed)
    voters = choice.choice([1, 3, 3, 3, 5])
    setup = Setup(voters, observers=choice.randint(0, 5 - voters), kraft_version=1, wire=seed % 4 == 0)
    cluster = BrokerCluster(seed, setup, Faults())
    administrator = Administrator(cluster)
    cluster.run(600)
    for _ in range(80):
        cluster.run(cluster.random.randint(1, 150))
        if cluster.random.random() < 0.5:
            administrator.act()
        else:
            break_something(cluster)
    check_recovery(cluster, administrator)
    return cluster


def check_recovery(cluster: BrokerCluster, administrator: Administrator) -> None:
    """Without faults, all brokers serve within seconds, and all partitions have all their replicas in sync."""
    for node, broker in list(cluster.brokers.items()):
        if broker.offline:
            cluster.crash(node)  # It starts again with a repaired directory.
    cluster.heal()
    cluster.settling = True
    for _ in range(40):
        cluster.run(500)
        cluster.start_all()  # those whose controlled shutdown has ended
        problem = cluster.unsettled()
        if problem is None:
            break
    else:
        pytest.fail(cluster.checks.fail(f"not settled after 20 s: {problem}"))
    administrator.check()


class Administrator:
    """Changes topics, and remembers what the controllers acknowledged."""

    def __init__(self, cluster: BrokerCluster, *, most_topics: int = 100, unclean: float = 0.3) -> None:
        self.cluster = cluster
        self.most_topics, self.unclean = most_topics, unclean
        self.random = cluster.random
        self.created: dict[str, bytes] = {}
        """The acknowledged topics."""
        self.deleted: set[str] = set()
        """Topics whose deletion was requested."""
        self.count = 0

    def act(self) -> None:
        """Send one random request to the active controller."""
        topics = list(self.cluster.history.image.topics_by_name.values())
        chance = self.random.random()
        if not topics or (chance < 0.25 and len(topics) < self.most_topics):
            self.create()
            return
        if chance < 0.3:
            topic = self.random.choice(topics)
            self.deleted.add(topic.name)
            request = DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=1000)
            self.ask(lambda c, _: c.delete_topics(request, 5))
        else:
            self.change()

    def change(self) -> None:
        """Send a random request that does not create or delete a topic."""
        topics = list(self.cluster.history.image.topics_by_name.values())
        if not topics:
            return
        chance, topic = self.random.uniform(0.3, 1.0), self.random.choice(topics)
        if chance < 0.4:
            grown = CreatePartitionsTopic(topic.name, len(topic.partitions) + 1)
            self.ask(lambda c, _: c.create_partitions(CreatePartitionsRequest(topics=[grown], timeout_ms=1000)))
        elif chance < 0.65:
            self.reassign(topic)
        elif chance < 0.9:
            self.elect(topic)
        else:
            self.stop_or_unregister()

    def ask(self, operation: Any, callback: Any = lambda _: None) -> None:
        cluster = self.cluster
        source = self.random.choice(list(cluster.nodes))
        target = cluster.active() or self.random.choice(list(cluster.nodes))
        cluster.call(source, target, operation, callback)

    def create(self) -> None:
        self.count += 1
        name = f"t{self.count}"
        factor = min(self.random.randint(1, 4), 3, len(self.cluster.nodes))
        is_unclean = self.random.random() < self.unclean
        configs = [
            CreatableTopicConfig("min.insync.replicas", str(self.random.randint(1, min(factor, 2)))),
            CreatableTopicConfig("unclean.leader.election.enable", str(is_unclean).lower()),
        ]
        topic = CreatableTopic(name, self.random.randint(1, 3), factor, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)

        def answer(result: Any) -> None:
            if isinstance(result, KafkaError) or result.topics[0].error_code:
                return
            self.created[name] = result.topics[0].topic_id
            self.check()

        self.ask(lambda c, _: c.create_topics(request), answer)

    def check(self) -> None:
        """Each acknowledged topic exists."""
        image = self.cluster.history.image
        kept = self.created.keys() - self.deleted
        missing = [name for name in kept if self.created[name] not in image.topics_by_id]
        assert not missing, self.cluster.checks.fail(f"acknowledged topics {missing} are lost")

    def reassign(self, topic: TopicImage) -> None:
        index = self.random.choice(list(topic.partitions))
        replicas = None
        if self.random.random() < 0.8:
            count = self.random.randint(1, min(3, len(self.cluster.nodes)))
            replicas = self.random.sample(list(self.cluster.nodes), count)
        moved = ReassignableTopic(topic.name, [ReassignablePartition(index, replicas)])
        request = AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[moved])
        self.ask(lambda c, _: c.alter_partition_reassignments(request))

    def elect(self, topic: TopicImage) -> None:
        index = self.random.choice(list(topic.partitions))
        kind = UNCLEAN if self.random.random() < self.unclean else PREFERRED
        if kind == UNCLEAN:
            self.cluster.history.unclean_requested.add((topic.name, index))
        request = ElectLeadersRequest(kind, [TopicPartitions(topic.name, [index])], timeout_ms=1000)
        self.ask(lambda c, _: c.elect_leaders(request))

    def stop_or_unregister(self) -> None:
        node = self.random.choice(list(self.cluster.nodes))
        if node in self.cluster.brokers:
            self.cluster.brokers[node].stops = True
        else:
            self.ask(lambda c, _: c.unregister_broker(node))


def break_something(cluster: BrokerCluster) -> None:
    """One random fault, or the end of faults."""
    random = cluster.random
    action = random.random()
    running = sorted(cluster.running)
    if action < 0.15 and running:
        cluster.crash(random.choice(running))
    elif action < 0.18:
        cut_power(cluster)
    elif action < 0.25 and running:
        cluster.crash_inside_step(random.choice(running))
    elif action < 0.5:
        cluster.start_all()
    elif action < 0.6:
        isolate(cluster)
    elif action < 0.65:
        cluster.blocked = {(random.choice(list(cluster.nodes)), random.choice(list(cluster.nodes))) for _ in range(3)}
    elif action < 0.75:
        cluster.blocked = set()
    elif action < 0.8 and running:
        cluster.take_snapshot(random.choice(running))
    elif action < 0.87:
        change_voters(cluster)
    elif action < 0.9:
        tell_leader(cluster)
    elif action < 0.97 and running:
        cluster.pause(random.choice(running), random.randint(50, 1500))
    elif cluster.brokers:
        fail_directory(cluster, random.choice(list(cluster.brokers.values())))


def fail_directory(cluster: BrokerCluster, broker: Broker) -> None:
    """Let a directory fail; a broker without directories stops."""
    broker.offline.append(cluster.random.choice(broker.directories))
    if set(broker.offline) >= set(broker.directories):
        cluster.crash(broker.node)
