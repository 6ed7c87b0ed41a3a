"""The whole cluster in one thread under one seed: real nodes and real clients; a failure names its seed.

`OTTLA_SEEDS=500 pytest tests/simulation/test_cluster.py` runs more seeds.
"""

from __future__ import annotations

import errno
import hashlib
import os
from itertools import cycle

import pytest

from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.cluster_run import ClusterRun
from tests.simulation.world.machines import End, Network
from tests.simulation.world.programs import IN, OUT, PARTITIONS, Member, Program, Reader, Transformer, Writer

SEEDS = int(os.environ.get("OTTLA_SEEDS", "2"))
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
        run.run.begin(TOPICS)
        run.run.happen(steps)
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
        run.run.begin(TOPICS)
        for machine in machines:
            run.cluster.run_for(2_000)
            machine.kill()
            run.cluster.run_for(1_000)
            run.run.wait("all nodes serve", run.run.all_serve, 60)
        run.end()
    assert not run.checks.losses


@pytest.mark.parametrize("seed", range(max(1, SEEDS // 4)))
def test_replica_on_a_replaced_disk_leads(seed: int) -> None:
    run = Run(seed)
    with run.cluster.machines.installed():
        run.run.begin(TOPICS)
        run.run.wait("all replicas are in sync", run.run.may_lead, 30)
        assert run.checks.may_lose_disk(4)
        run.cluster.nodes[4].replace_disk()
        run.cluster.run_for(1_000)
        run.end()


@pytest.mark.parametrize("seed", range(max(1, SEEDS // 2)))
def test_coordinators_that_were_superseded_change_nothing(seed: int) -> None:
    """They are paused or cut off during transactions, and go on when others have their role."""
    run = Run(seed, transformers=2)
    with run.cluster.machines.installed():
        run.run.begin(TOPICS)
        run.cluster.run_for(3_000)
        for _ in range(10):
            run.run.supersede_leader(run.cluster.random.choice(("__transaction_state", "__transaction_state", OUT)))
            run.cluster.run_for(run.cluster.random.choice((1_000, 4_000, 6_000)))
        run.end()
    assert not run.checks.losses


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
        run_seed(3, steps=8)
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


TOPICS: dict[str, dict[str, object]] = {IN: {}, OUT: {}}


class Run:
    """One cluster with its programs."""

    def __init__(self, seed: int, transformers: int | None = None) -> None:
        """Without a number of transformers the seed chooses it."""
        self.run = run = ClusterRun(SimulatedCluster(seed))
        self.cluster, self.checks, self.work = run.cluster, run.checks, run.work
        random = self.cluster.random
        self.reader = Reader(self.work, 1)
        self.writers = [Writer(self.work, each + 1) for each in range(random.choice((1, 1, 2)))]
        chosen = random.choice((0, 1, 2, 2)) if transformers is None else transformers
        self.transformers = [Transformer(self.work, each + 1) for each in range(chosen)]
        members = [Member(self.work, each + 1) for each in range(random.choice((0, 0, 2)))]
        programs: list[Program] = [*self.writers, *self.transformers, *members]
        if self.transformers:
            programs.append(self.reader)
        run.set_programs(programs)

    def end(self) -> None:
        """Without faults, everything works again within a bounded time, and nothing is lost."""
        self.run.heal()
        for writer in self.writers:
            writer.stopping = True
        if self.checks.losses:
            return
        if self.transformers:
            self.run.wait("all records are copied", self._is_copied, 90)
        self.run.check_leaders()
        assert sorted(self.reader.tags[0]) == sorted(self.reader.tags[1]), self.cluster.fail("half of a transaction")
        for index in range(PARTITIONS):
            self._check_writers(index)

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
