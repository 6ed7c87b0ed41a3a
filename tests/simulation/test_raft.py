"""The quorum under crashes, lost messages and partitions; a failure names its seed."""

from __future__ import annotations

import pytest

from .raft_cluster import Cluster


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_quiet_quorum_elects_one_leader_and_commits_everything(size: int) -> None:
    cluster = Cluster(seed=1, size=size, loss=0.0)
    cluster.run(2_000)
    for i in range(20):
        assert cluster.propose(f"v{i}")
        cluster.run(50)
    cluster.run(500)
    values = [value for _, value in cluster.committed if value.startswith("v")]
    assert values == [f"v{i}" for i in range(20)]
    assert len(cluster.leaders) == 1
    assert {core.high_watermark for core in cluster.cores.values()} == {len(cluster.committed)}


@pytest.mark.parametrize("seed", range(40))
def test_what_was_committed_survives_crashes_and_partitions(seed: int) -> None:
    cluster = Cluster(seed=seed, size=3 if seed % 2 else 5)
    random = cluster.random
    proposed = 0
    for _ in range(60):
        cluster.run(random.randint(20, 300))
        action = random.random()
        if action < 0.5:
            proposed += cluster.propose(f"v{proposed}")
        elif action < 0.65 and len(cluster.cores) > 1:
            cluster.crash(random.choice(sorted(cluster.cores)))
        elif action < 0.85:
            for voter in set(cluster.voters) - set(cluster.cores):
                cluster.start(voter)
        elif action < 0.93:
            cluster.cut = {random.choice(list(cluster.voters))}
        else:
            cluster.cut = set()
    cluster.cut, cluster.loss = set(), 0.0
    for voter in set(cluster.voters) - set(cluster.cores):
        cluster.start(voter)
    cluster.run(10_000)
    before = len(cluster.committed)
    assert cluster.propose("last"), f"no leader after all came back (seed {seed})"
    cluster.run(2_000)
    assert "last" in [value for _, value in cluster.committed[before:]], f"seed {seed}"
    logs = [disk.log for disk in cluster.disks.values()]
    assert all(log == logs[0] for log in logs), f"the logs differ at rest (seed {seed})"


def test_a_minority_commits_nothing_and_steps_down() -> None:
    cluster = Cluster(seed=7, size=3, loss=0.0)
    cluster.run(2_000)
    old = cluster.leader()
    assert old is not None
    cluster.cut = {old}
    core, disk = cluster.cores[old], cluster.disks[old]
    high_watermark = core.high_watermark
    cluster.run(3_000)
    assert core.high_watermark == high_watermark
    assert not core.is_leader
    new = cluster.leader()
    assert new not in (None, old)
    assert cluster.propose("after")
    cluster.cut = set()
    cluster.run(3_000)
    assert "after" in [value for _, value in disk.log]


def test_one_voter_loses_nothing_committed_in_a_hundred_crashes() -> None:
    cluster = Cluster(seed=3, size=1)
    for i in range(100):
        assert cluster.propose(f"v{i}"), "one voter elects itself at once"
        cluster.run(cluster.random.randint(1, 30))
        known = list(cluster.committed)
        cluster.crash(1)
        cluster.start(1)
        assert cluster.disks[1].log[: len(known)] == known
        assert cluster.cores[1].epoch == i + 2
