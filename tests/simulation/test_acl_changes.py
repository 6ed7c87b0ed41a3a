"""Access control lists that change on a simulated cluster, while its nodes fail and clients ask.

`OTTLA_SEEDS=500 pytest tests/simulation/test_acl_changes.py` runs more seeds.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.world.acls import SETTINGS, Asker, Changer, Rules
from tests.simulation.world.cluster import SimulatedCluster
from tests.simulation.world.cluster_run import ClusterRun
from tests.simulation.world.programs import IN

SEEDS = int(os.environ.get("OTTLA_SEEDS", "2"))
STEPS = 40


class Run:
    """A cluster, askers, and their changers."""

    def __init__(self, seed: int) -> None:
        self.run = run = ClusterRun(SimulatedCluster(seed, settings=SETTINGS))
        self.rules = rules = Rules(run.cluster)
        askers = [Asker(run.work, each, rules) for each in (1, 2)]
        run.set_programs([*askers, *(Changer(run.work, each, rules) for each in (1, 2))])

    def end(self) -> None:
        """Without faults, changes succeed again, and all nodes have the same rules."""
        self.run.heal()
        before = dict(self.rules.answers)
        self.run.wait("askers are denied and allowed", lambda: self.rules.both_since(before), 60)
        for program in self.run.programs:
            program.stopping = True
        self.run.wait("all nodes have the same rules", self.rules.all_know_the_same, 60)


def run_seed(seed: int, steps: int = STEPS) -> Run:
    """A run of about 40 faults, and the healing."""
    run = Run(seed)
    with run.run.cluster.machines.installed(), run.rules.nodes_known():
        run.run.begin({IN: {}})
        run.run.happen(steps)
        run.end()
    return run


@pytest.mark.parametrize("seed", range(SEEDS))
def test_revoked_rights_are_not_used_after_the_call_returned(seed: int) -> None:
    run_seed(seed)
