"""Compaction and retention in a simulated cluster, while policies, replicas, directories and disks change.

`OTTLA_SEEDS=500 pytest tests/simulation/test_cleaned_logs.py` runs more seeds.
"""

from __future__ import annotations

import os

import pytest

from ottla.common.ids import TopicPartition
from tests.simulation.world.cluster import CLEANED, SimulatedCluster
from tests.simulation.world.cluster_run import ClusterRun
from tests.simulation.world.programs import PARTITIONS, Program
from tests.simulation.world.retained import Retained
from tests.simulation.world.storage_faults import BOTH, COMPACT, DELETE, StorageFaults
from tests.simulation.world.tables import TABLE, TableReader, TableWriter

SEEDS = int(os.environ.get("OTTLA_SEEDS", "2"))
STEPS = 40
POLICIES = ((COMPACT,), (COMPACT, DELETE), (COMPACT, DELETE, BOTH), (DELETE,))


class Run:
    """A cluster with a table that has small segments."""

    def __init__(self, seed: int) -> None:
        self.run = run = ClusterRun(SimulatedCluster(seed, settings=CLEANED))
        self.cluster = run.cluster
        random = self.cluster.random
        self.retained = Retained(run.checks)
        # In turn: one seed in four has compaction alone, which must keep every key.
        policies = POLICIES[seed % len(POLICIES)]
        self.storage = StorageFaults(run, self.retained, policies)
        retention_bytes = random.choice((1_000, 4_000))
        self.retained.add(TABLE, policies[0], retention_bytes)
        self.topic: dict[str, object] = {
            "cleanup.policy": policies[0],
            "retention.bytes": retention_bytes,
            "retention.ms": -1,
            "index.interval.bytes": 0,
            "segment.index.bytes": random.choice((60, 240)),
            "min.cleanable.dirty.ratio": random.choice((0, 0.01)),
            "file.delete.delay.ms": random.choice((0, 2_000)),
        }
        self.writers = [TableWriter(run.work, each + 1) for each in range(random.choice((1, 2)))]
        self.reader = TableReader(run.work, self.retained)
        programs: list[Program] = [*self.writers, self.reader]
        run.set_programs(programs, self.storage.all())

    def end(self) -> None:
        """Without faults, all replicas return, all logs are cleaned, and a reader has the last value of each key."""
        run = self.run
        run.heal()
        for writer in self.writers:
            writer.stopping = True
        if run.checks.losses:
            return
        run.check_leaders()
        run.cluster.run_for(2_000)
        run.wait("all logs are compacted", self.retained.are_cleaned, 60)
        self.retained.check_all()
        passes = self.reader.passes
        run.wait("the table is read", lambda: self.reader.passes >= passes + 2, 60)
        for index in range(PARTITIONS):
            self._check_order(index)

    def _check_order(self, index: int) -> None:
        """Each value of a writer was committed once, in its order."""
        last: dict[bytes, int] = {}
        for _, value in self.run.checks.partitions[TopicPartition(TABLE, index)].records:
            if value is not None:
                writer, _, number = value.rstrip(b".").rpartition(b".")
                assert int(number) > last.get(writer, 0), self.cluster.fail(f"{value!r} is twice or late")
                last[writer] = int(number)


def run_seed(seed: int, steps: int = STEPS) -> Run:
    """A run of about 40 faults, and the healing."""
    run = Run(seed)
    with run.cluster.machines.installed():
        run.run.begin({TABLE: run.topic})
        run.run.happen(steps)
        run.end()
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_cleaned_logs_keep_what_they_must(seed: int) -> None:
    run_seed(seed)
