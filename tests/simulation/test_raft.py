"""The quorum under crashes, lost messages and network partitions; a failure names its seed."""

from __future__ import annotations

import pytest

from .world.quorum import Quorum


@pytest.mark.parametrize("size", [1, 3, 5])
def test_healthy_quorum_elects_one_leader_and_commits_every_record(size: int) -> None:
    quorum = Quorum(seed=1, size=size, loss=0.0)
    quorum.run(2_000)
    for i in range(20):
        assert quorum.propose(f"v{i}")
        quorum.run(50)
    quorum.run(500)
    values = [value for _, value in quorum.committed if value.startswith("v")]
    assert values == [f"v{i}" for i in range(20)]
    assert len(quorum.leaders) == 1
    assert {core.high_watermark for core in quorum.cores.values()} == {len(quorum.committed)}


@pytest.mark.parametrize("seed", range(40))
def test_committed_records_survive_crashes_and_partitions(seed: int) -> None:
    quorum = Quorum(seed=seed, size=3 if seed % 2 else 5)
    random = quorum.random
    proposed = 0
    for _ in range(60):
        quorum.run(random.randint(20, 300))
        action = random.random()
        if action < 0.5:
            proposed += quorum.propose(f"v{proposed}")
        elif action < 0.65 and len(quorum.cores) > 1:
            quorum.crash(random.choice(sorted(quorum.cores)))
        elif action < 0.85:
            start_crashed_voters(quorum)
        elif action < 0.93:
            quorum.network.isolated = {random.choice(list(quorum.voters))}
        else:
            quorum.network.isolated = set()
    quorum.network.isolated, quorum.network.loss = set(), 0.0
    start_crashed_voters(quorum)
    quorum.run(10_000)
    before = len(quorum.committed)
    assert quorum.propose("last"), f"no leader after all voters have started (seed {seed})"
    quorum.run(2_000)
    assert "last" in [value for _, value in quorum.committed[before:]], f"seed {seed}"
    logs = [disk.log for disk in quorum.disks.values()]
    assert all(log == logs[0] for log in logs), f"the logs differ at the end (seed {seed})"


def start_crashed_voters(quorum: Quorum) -> None:
    for voter in set(quorum.voters) - set(quorum.cores):
        quorum.start(voter)


def test_isolated_leader_commits_nothing_and_resigns() -> None:
    quorum = Quorum(seed=7, size=3, loss=0.0)
    quorum.run(2_000)
    old = quorum.leader()
    assert old is not None
    quorum.network.isolated = {old}
    core, disk = quorum.cores[old], quorum.disks[old]
    high_watermark = core.high_watermark
    quorum.run(3_000)
    assert core.high_watermark == high_watermark
    assert not core.is_leader
    new = quorum.leader()
    assert new not in (None, old)
    assert quorum.propose("after")
    quorum.network.isolated = set()
    quorum.run(3_000)
    assert "after" in [value for _, value in disk.log]


def test_single_voter_keeps_every_committed_record_in_a_hundred_crashes() -> None:
    quorum = Quorum(seed=3, size=1)
    for i in range(100):
        assert quorum.propose(f"v{i}"), "a single voter elects itself at once"
        quorum.run(quorum.random.randint(1, 30))
        known = list(quorum.committed)
        quorum.crash(1)
        quorum.start(1)
        assert quorum.disks[1].log[: len(known)] == known
        assert quorum.cores[1].epoch == i + 2
