"""The whole cluster in one thread under one seed: real nodes and real clients; a failure names its seed.

`OTTLA_SEEDS=500 pytest tests/simulation/test_cluster.py` runs more seeds.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

import pytest

from ottla.clients import AsyncAdmin
from ottla.clients.errors import TopicAlreadyExists
from ottla.metadata.image import PartitionImage
from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.cluster_checks import ClusterChecks
from tests.simulation.world.cluster_faults import ClusterFaults
from tests.simulation.world.machines import End, Network
from tests.simulation.world.programs import IN, OUT, PARTITIONS, Member, Program, Reader, Transformer, Work, Writer

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
STEPS = 40
# A leader that is more than `log.message.timestamp.after.max.ms` (an hour) behind its producers rejects their records.
AHEAD_MS = (-3_500_000, 0, 6 * 3_600_000)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_cluster_keeps_its_promises(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int, steps: int = STEPS) -> Run:
    """A run of about 40 faults, and the healing."""
    run = Run(seed)
    with run.cluster.machines.installed():
        run.begin()
        for _ in range(steps):
            run.faults.happen()
            run.cluster.run_for(run.cluster.random.choice((50, 200, 500, 1_000)))
        run.end()
    return run


@pytest.mark.parametrize("seed", range(max(1, SEEDS // 4)))
def test_clocks_that_differ_by_hours_lose_nothing(seed: int) -> None:
    """Leaders and coordinators move between them. Groups and transactions go on, and retention deletes nothing."""
    run = Run(seed)
    machines = list(run.cluster.nodes.values())
    for machine, ahead_ms in zip(machines, cycle(AHEAD_MS), strict=False):
        machine.ahead_ms = ahead_ms
    with run.cluster.machines.installed():
        run.begin()
        for machine in machines:
            run.cluster.run_for(2_000)
            machine.kill()
            run.cluster.run_for(1_000)
            run.wait("all nodes serve", run.all_serve, 60)
        run.end()
    assert not run.checks.losses


@pytest.mark.parametrize("seed", range(max(1, SEEDS // 4)))
def test_replica_on_a_replaced_disk_leads(seed: int) -> None:
    run = Run(seed)
    with run.cluster.machines.installed():
        run.begin()
        run.wait("all replicas are in sync", run.may_lead, 30)
        assert run.checks.may_lose_disk(4)
        run.cluster.nodes[4].replace_disk()
        run.cluster.run_for(1_000)
        run.end()


def test_seed_decides_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed sends the same bytes at the same times, also after others in the same process."""
    trace = hashlib.sha256()
    send = Network.send

    def traced(network: Network, source: End, piece: bytes | Exception | None) -> None:
        trace.update(f"{network.schedule.now_us} {source.process.host} {source.peer} {piece!r}".encode())
        send(network, source, piece)

    monkeypatch.setattr(Network, "send", traced)
    traces = []
    for _ in range(2):
        trace = hashlib.sha256()
        run_seed(3, steps=15)
        traces.append(trace.hexdigest())
    assert traces[0] == traces[1]


def test_node_whose_metadata_disk_fails_ends_soon() -> None:
    """It cannot follow the metadata, so that it must not wait to hear that other nodes lead its partitions."""
    cluster = SimulatedCluster(1)
    with cluster.machines.installed():
        for machine in cluster.nodes.values():
            machine.start()
        cluster.run_for(5_000)
        cluster.nodes[3].disk.fail_writes = errno.EIO
        cluster.run_for(5_000)
        assert cluster.nodes[3].run is None, "it is still about to stop"


class Setup(Program):
    """Creates the topics."""

    name = "setup"
    done = False

    async def main(self) -> None:
        async with AsyncAdmin(**self.work.connection) as admin:
            for topic in (IN, OUT):
                with suppress(TopicAlreadyExists):
                    await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        self.done = self.work.stopping = True


class Run:
    """One cluster with its programs."""

    def __init__(self, seed: int) -> None:
        self.cluster = cluster = SimulatedCluster(seed)
        self.checks = ClusterChecks(cluster)
        cluster.on_event.append(self.checks.after_event)
        random = cluster.random
        cluster.machines.network.latency_us = random.choice(((200, 3_000), (1_000, 10_000), (2_000, 20_000)))
        self.work = Work(cluster, self.checks, random.choice(("classic", "consumer")))
        self.reader = Reader(self.work, 1)
        self.writers = [Writer(self.work, each + 1) for each in range(random.choice((1, 1, 2)))]
        self.transformers = [Transformer(self.work, each + 1) for each in range(random.choice((0, 1, 2, 2)))]
        self.members = [Member(self.work, each + 1) for each in range(random.choice((0, 0, 2)))]
        self.programs: list[Program] = [*self.writers, *self.transformers, *self.members]
        if self.transformers:
            self.programs.append(self.reader)
        self.faults = ClusterFaults(cluster, self.checks, self.work, self.programs)

    def begin(self) -> None:
        """Start the nodes, create the topics, and start the programs."""
        for machine in self.cluster.nodes.values():
            machine.start()
        setup = Setup(self.work, 1)
        setup.start()
        self.wait("the topics are created", lambda: setup.done, 60)
        self.work.stopping = False
        for program in self.programs:
            program.start()

    def wait(self, what: str, condition: Callable[[], bool], limit_s: int) -> None:
        for _ in range(limit_s * 4):
            if condition():
                return
            self.cluster.run_for(250)
        pytest.fail(self.cluster.fail(f"not true after {limit_s} s: {what}; {self.faults.states()}"))

    def end(self) -> None:
        """Without faults, everything works again within a bounded time, and nothing is lost."""
        self.faults.heal()
        self.wait("all nodes serve", self.all_serve, 60)
        acknowledged = self.work.acknowledged
        self.wait("records are acknowledged", lambda: self.work.acknowledged > acknowledged, 60)
        for writer in self.writers:
            writer.stopping = True
        if self.checks.losses:
            return
        if self.transformers:
            self.wait("all records are copied", self._is_copied, 90)
        self.wait("each replica is in sync and may lead", self.may_lead, 30)
        self.faults.elect()
        self.wait("the preferred replicas lead", self._preferred_lead, 30)
        assert sorted(self.reader.tags[0]) == sorted(self.reader.tags[1]), self.cluster.fail("half of a transaction")
        for index in range(PARTITIONS):
            self._check_writers(index)

    def all_serve(self) -> bool:
        for machine in self.cluster.nodes.values():
            machine.start()
        return len(self.cluster.running()) == len(self.cluster.nodes)

    def _partitions(self) -> list[PartitionImage]:
        return [each for topic in self.checks.history.image.topics_by_id.values() for each in topic.partitions.values()]

    def may_lead(self) -> bool:
        image = self.checks.history.image
        return all(
            set(each.isr) == set(each.replicas) and not image.offline_replicas(each, image.brokers.keys())
            for each in self._partitions()
        )

    def _preferred_lead(self) -> bool:
        return all(each.leader == each.replicas[0] for each in self._partitions())

    def _is_copied(self) -> bool:
        return all(
            len(self.reader.values[each]) == len(self.checks.values(IN, each)) for each in range(PARTITIONS)
        ) and len(self.reader.tags[0]) == len(self.reader.tags[1])

    def _check_writers(self, index: int) -> None:
        """Each record of a writer is in the log once, in its order."""
        last: dict[bytes, int] = {}
        for value in self.checks.values(IN, index):
            assert value is not None
            writer, _, number = value.rpartition(b".")
            assert int(number) > last.get(writer, 0), self.cluster.fail(f"{value!r} is twice or late in {IN}-{index}")
            last[writer] = int(number)
