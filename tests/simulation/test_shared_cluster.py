"""A share group on a simulated cluster: leaders and share coordinators move, fail and are superseded.

`OTTLA_SEEDS=500 pytest tests/simulation/test_shared_cluster.py` runs more seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.cluster_run import ClusterRun
from tests.simulation.world.programs import IN, Writer
from tests.simulation.world.sharing import SETTINGS, Shared, Sharer, ShareSetup

SEEDS = int(os.environ.get("OTTLA_SEEDS", "2"))
STEPS = 40


class Run:
    """A cluster, a writer, and members of a share group."""

    def __init__(self, seed: int) -> None:
        self.run = run = ClusterRun(SimulatedCluster(seed, settings=SETTINGS))
        self.shared = Shared(run.checks)
        self.writer = Writer(run.work, 1)
        self.sharers = [Sharer(run.work, each + 1, self.shared) for each in range(run.cluster.random.choice((1, 2, 3)))]
        run.set_programs([self.writer, *self.sharers], ((15, run.supersede_leader),))

    def begin(self) -> None:
        """Create the topic and configure the group before its members start."""
        setup = ShareSetup(self.run.work, 1)
        programs, self.run.programs = self.run.programs, []
        self.run.begin({IN: {}})
        self.run.programs = programs
        setup.start()
        self.run.wait("the group is configured", lambda: setup.done, 60)
        for program in programs:
            program.start()

    def end(self) -> None:
        """Without faults, the members get each record that they did not accept yet."""
        for sharer in self.sharers:
            sharer.accepts_all = True
        self.run.heal()
        self.writer.stopping = True
        if self.run.checks.losses:
            return
        self.run.check_leaders()
        self.run.wait("all records are accepted", lambda: not self.shared.missing(), 60)


def run_seed(seed: int, steps: int = STEPS) -> Run:
    """A run of about 40 faults, and the healing."""
    run = Run(seed)
    with run.run.cluster.machines.installed(), run.shared.watching():
        run.begin()
        run.run.happen(steps)
        run.end()
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_share_group_keeps_its_acknowledgements(seed: int) -> None:
    run_seed(seed)
