"""One run of a simulated cluster with its programs: the start, the waits, and the end without faults."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.clients import AsyncAdmin
from ottla.clients.errors import TopicAlreadyExists
from ottla.metadata.image import PartitionImage
from tests.simulation.world.cluster import SimulatedCluster, host_of
from tests.simulation.world.cluster_checks import ClusterChecks
from tests.simulation.world.cluster_faults import ClusterFaults, Faults
from tests.simulation.world.programs import PARTITIONS, Program, Work


class Setup(Program):
    """Creates the topics, each with its configuration."""

    name = "setup"
    done = False

    def __init__(self, work: Work, topics: dict[str, dict[str, object]]) -> None:
        super().__init__(work, 1)
        self._topics = topics

    async def main(self) -> None:
        async with AsyncAdmin(**self.work.connection) as admin:
            for topic, config in self._topics.items():
                with suppress(TopicAlreadyExists):
                    await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3, config=config)
        self.done = self.work.stopping = True


class ClusterRun:
    """A cluster, its checks, its programs and its faults."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.checks = ClusterChecks(cluster)
        cluster.on_event.append(self.checks.after_event)
        random = cluster.random
        cluster.machines.network.latency_us = random.choice(((200, 3_000), (1_000, 10_000), (2_000, 20_000)))
        self.work = Work(cluster, self.checks, random.choice(("classic", "consumer")))
        self.programs: list[Program] = []
        self.faults: ClusterFaults

    def set_programs(self, programs: list[Program], faults: Faults = ()) -> None:
        """The programs of this run, and faults of its own."""
        self.programs = programs
        self.faults = ClusterFaults(self.cluster, self.checks, self.work, programs, faults)

    def supersede_leader(self, topic: str | None = None) -> str | None:
        """Pause the leader of a partition, or cut it off, until others lead; then it goes on.

        The leader of an internal partition is a coordinator. `topic` limits the choice; without it, clients still
        reach a leader that is cut off from the other nodes.
        """
        random, network = self.cluster.random, self.cluster.machines.network
        leaders = [
            (name, image.leader)
            for name in sorted(self.checks.partitions)
            if topic in {None, name.topic} and (image := self.checks.image_of(name)) is not None
        ]
        name, leader = random.choice(leaders) if leaders else (None, -1)
        run = self.cluster.nodes[leader].run if leader >= 0 else None
        if run is None:
            return None
        if random.random() < 0.4:
            run.process.pause(4_000_000)
            return f"pause {leader}, the leader of {name}"
        others = [host_of(each) for each in self.cluster.nodes if each != leader]
        others += [] if topic is None else [program.host for program in self.programs]
        links = {link for each in others for link in ((host_of(leader), each), (each, host_of(leader)))}
        network.blocked |= links

        def repair() -> None:
            network.blocked -= links
            network.released()

        self.cluster.machines.schedule.plan(random.choice((3_500_000, 5_000_000)), repair)
        return f"cut off {leader}, the leader of {name}"

    def begin(self, topics: dict[str, dict[str, object]]) -> None:
        """Start the nodes, create the topics, and start the programs."""
        for machine in self.cluster.nodes.values():
            machine.start()
        setup = Setup(self.work, topics)
        setup.start()
        self.wait("the topics are created", lambda: setup.done, 60)
        self.work.stopping = False
        for program in self.programs:
            program.start()

    def happen(self, steps: int) -> None:
        """Let faults happen."""
        for _ in range(steps):
            self.faults.happen()
            self.cluster.run_for(self.cluster.random.choice((50, 200, 500, 1_000)))

    def wait(self, what: str, condition: Callable[[], object], limit_s: int) -> None:
        """Let time pass until something is true. The failure shows its last value."""
        for _ in range(limit_s * 4):
            if value := condition():
                return
            self.cluster.run_for(250)
        problem = f"not true after {limit_s} s: {what} ({value})"
        pytest.fail(self.cluster.fail(f"{problem}; {self.faults.states()}"))

    def heal(self, *, needs_all: bool = False) -> None:
        """End the faults, and wait until all nodes serve and records are acknowledged.

        With `needs_all` the programs make no progress while a partition is abandoned, and the wait ends then.
        """
        self.faults.heal()
        for node_id, node in self.cluster.running().items():
            if not all(each.online for each in node.broker.logs.directories()):
                self.cluster.nodes[node_id].kill()  # a directory that failed is used again after a restart
        self.wait("all nodes serve", self.all_serve, 60)
        acknowledged = self.work.acknowledged

        def go_on() -> bool:
            return self.work.acknowledged > acknowledged or (needs_all and self.is_abandoned())

        self.wait("records are acknowledged", go_on, 60)

    def is_abandoned(self) -> bool:
        """Whether a partition waits for an unclean election: its last in-sync replica may have lost records."""
        return any(each.leader < 0 and each.last_known_elr for each in self._partitions())

    def check_leaders(self) -> None:
        """Each replica returns to the ISR, and the preferred ones lead."""
        self.wait("each replica is in sync and may lead", lambda: self.all_serve() and self.may_lead(), 30)
        self.faults.elect()
        self.wait("the preferred replicas lead", self._preferred_lead, 30)

    def all_serve(self) -> bool:
        """Start each node that does not run; whether all serve."""
        for machine in self.cluster.nodes.values():
            machine.start()
        return len(self.cluster.running()) == len(self.cluster.nodes)

    def _partitions(self) -> list[PartitionImage]:
        return [each for topic in self.checks.history.image.topics_by_id.values() for each in topic.partitions.values()]

    def may_lead(self) -> bool:
        """Whether each replica of each partition is in sync and has a directory."""
        image = self.checks.history.image
        return all(
            set(each.isr) == set(each.replicas) and not image.offline_replicas(each, image.brokers.keys())
            for each in self._partitions()
        )

    def _preferred_lead(self) -> bool:
        return all(each.leader == each.replicas[0] for each in self._partitions())
