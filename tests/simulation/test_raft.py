"""The quorum under crashes, lost messages, partitions, voter changes and snapshots; a failure names its seed.

`OTTLA_SEEDS=2000 pytest tests/simulation/test_raft.py` runs more seeds.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ottla.common.errors import ErrorCode
from ottla.raft.events import ResignRequested, UpgradeRequested
from ottla.raft.messages import AddVoterRequest, RemoveVoterRequest
from tests.simulation.world.quorum import Quorum, voter_of
from tests.simulation.world.quorum_parts import Faults, Setup

SEEDS = int(os.environ.get("OTTLA_SEEDS", "30"))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_healthy_quorum_elects_one_leader_and_commits_every_record(size: int, kraft_version: int) -> None:
    quorum = Quorum(1, Setup(size, observers=1, kraft_version=kraft_version))
    quorum.run(2_000)
    for i in range(20):
        assert quorum.propose(f"v{i}")
        quorum.run(50)
    quorum.run(500)
    values = [value for _, value in quorum.checks.committed if isinstance(value, str)]
    assert values == [f"v{i}" for i in range(20)]
    assert len(quorum.checks.leaders) == 1
    assert {each.core.high_watermark for each in quorum.running.values()} == {len(quorum.checks.committed)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_committed_records_survive_everything(seed: int) -> None:
    run_seed(seed)


def run_seed(seed: int) -> Quorum:
    """A run of 100 actions and faults, and the healing."""
    choice = Random(~seed)
    voters = choice.choice([1, 2, 3, 3, 3, 4, 5])
    setup = Setup(
        voters,
        observers=choice.randint(0, 5 - voters),
        kraft_version=choice.choice([0, 1, 1]),
        auto_join=choice.random() < 0.3,
        wire=seed % 3 == 0,
    )
    quorum = Quorum(seed, setup, Faults())
    proposed = 0
    for _ in range(100):
        quorum.run(quorum.random.randint(1, 120))
        proposed += act(quorum, f"v{proposed}")
    check_recovery(quorum)
    return quorum


def act(quorum: Quorum, value: str) -> bool:
    """One random action; True if it proposed the value."""
    random = quorum.random
    action = random.random()
    running = sorted(quorum.running)
    if action < 0.4:
        return all(quorum.propose(value) for _ in range(random.randint(1, 3)))
    if action < 0.46 and running:
        quorum.crash(random.choice(running))
    elif action < 0.49:
        cut_power(quorum)
    elif action < 0.53 and running:
        quorum.crash_inside_step(random.choice(running))
    elif action < 0.7:
        quorum.start_all()
    elif action < 0.78:
        isolate(quorum)
    elif action < 0.82:
        quorum.blocked = {(random.choice(list(quorum.nodes)), random.choice(list(quorum.nodes))) for _ in range(3)}
    elif action < 0.9:
        quorum.blocked = set()
    elif action < 0.94 and running:
        quorum.take_snapshot(random.choice(running))
    elif action < 0.98:
        change_voters(quorum)
    else:
        tell_leader(quorum)
    return False


def cut_power(quorum: Quorum) -> None:
    """Stop most nodes at once, and start some of them, so that a minority may have the latest records."""
    random = quorum.random
    for node in list(quorum.nodes):
        if node in quorum.running and random.random() < 0.8:
            quorum.crash(node)
    for node in list(quorum.nodes):
        if node not in quorum.running and random.random() < 0.7:
            quorum.start(node)


def isolate(quorum: Quorum) -> None:
    """Separate a node, or the leader and perhaps one more, from the others. The leader then accepts some records."""
    random = quorum.random
    leader = quorum.leader()
    one = leader if leader is not None and random.random() < 0.6 else random.choice(list(quorum.nodes))
    inside = {one, random.choice(list(quorum.nodes))} if random.random() < 0.4 else {one}
    outside = set(quorum.nodes) - inside
    quorum.blocked = {pair for a in inside for b in outside for pair in ((a, b), (b, a))}
    if leader in inside:
        for _ in range(random.randint(0, 3)):
            quorum.propose("isolated")


def tell_leader(quorum: Quorum) -> None:
    """Let the leader resign, raise kraft.version, or replace the disk of a node that is not a voter."""
    leader = quorum.leader()
    if leader is None:
        return
    core = quorum.core(leader)
    action = quorum.random.choice(["resign", "upgrade", "replace"])
    if action == "resign":
        quorum.tell(leader, ResignRequested(core.epoch))
    elif action == "upgrade":
        quorum.tell(leader, UpgradeRequested(quorum.token(), 1))
    else:
        quorum.replace_disk(quorum.random.choice(list(quorum.nodes)))


def change_voters(quorum: Quorum) -> None:
    """Ask the leader to add or to remove a random voter."""
    leader = quorum.leader()
    if leader is None:
        return
    node = quorum.random.choice(list(quorum.nodes))
    voter = voter_of(quorum, node)
    if quorum.core(leader).voters.is_voter(voter.key):
        quorum.ask(leader, RemoveVoterRequest("simulated", voter.key))
    else:
        quorum.ask(leader, AddVoterRequest("simulated", 1000, voter.key, voter.endpoints))


def check_recovery(quorum: Quorum) -> None:
    """Without faults, a leader exists and makes progress within seconds, and all logs become equal."""
    quorum.heal()
    for _ in range(20):
        quorum.run(500)
        if quorum.leader() is not None and quorum.propose("last"):
            quorum.run(500)
            if "last" in [value for _, value in quorum.checks.committed[-20:]]:
                break
    else:
        pytest.fail(quorum.checks.fail("no progress within 20 s after all faults ended"))
    quorum.run(2_000)
    ends = {each.core.high_watermark for each in quorum.running.values()}
    assert len(ends) == 1, quorum.checks.fail(f"the replicas do not catch up: {ends}")


def test_isolated_leader_commits_nothing_and_resigns() -> None:
    quorum = Quorum(7, Setup(3))
    quorum.run(2_000)
    old = quorum.leader()
    assert old is not None
    quorum.blocked = {pair for other in quorum.nodes for pair in ((old, other), (other, old))}
    core = quorum.core(old)
    high_watermark = core.high_watermark
    quorum.run(3_000)
    assert core.high_watermark == high_watermark
    assert not core.is_leader
    new = quorum.leader()
    assert new not in (None, old)
    assert quorum.propose("after")
    quorum.blocked = set()
    quorum.run(3_000)
    assert "after" in [value for _, value in quorum.disks[old].history()]


def test_single_voter_keeps_every_committed_record_in_a_hundred_crashes() -> None:
    quorum = Quorum(3, Setup(1))
    for i in range(100):
        assert quorum.propose(f"v{i}"), "a single voter elects itself at once"
        quorum.run(quorum.random.randint(1, 30))
        known = tuple(quorum.checks.committed)
        quorum.crash(1)
        quorum.start(1)
        assert quorum.disks[1].history()[: len(known)] == known
        assert quorum.core(1).epoch == i + 2


def test_voter_set_grows_and_shrinks_while_records_are_written() -> None:
    quorum = Quorum(11, Setup(1, observers=2))
    quorum.run(1_000)
    for node in (2, 3):
        voter = voter_of(quorum, node)
        number = quorum.ask(1, AddVoterRequest("simulated", 1000, voter.key, voter.endpoints))
        quorum.propose(f"while {node} joins")
        quorum.run(1_000)
        assert quorum.answers.received[number].error is ErrorCode.NONE
    assert quorum.core(1).voters.ids == {1, 2, 3}
    number = quorum.ask(1, RemoveVoterRequest("simulated", voter_of(quorum, 1).key))
    quorum.run(2_000)
    assert quorum.answers.received[number].error is ErrorCode.NONE
    assert quorum.leader() in (2, 3), "a leader that is removed resigns"
    assert quorum.core(1).voters.ids == {2, 3}
    assert not quorum.core(1).is_voter


def test_record_of_an_old_epoch_is_not_committed_without_one_of_the_leaders_own() -> None:
    """Figure 8 of the Raft paper: a record on a majority can still be lost to a voter with a later epoch."""
    quorum = Quorum(5, Setup(3))
    first = elected(quorum)
    quorum.run(1_000)
    separate(quorum, first)
    assert quorum.propose("old")
    quorum.run(20)
    quorum.crash(first)
    # Another voter leads, and only it has the first record of its epoch, which is later than the epoch of "old".
    quorum.blocked = set()
    quorum.limit = quorum.disks[first].end - 1
    leader = elected(quorum)
    quorum.run(20)
    quorum.crash(leader)
    (other,) = set(quorum.nodes) - {first, leader}
    assert quorum.disks[leader].end > quorum.disks[other].end
    # The first leader wins again with the vote of the third voter, which fetches "old", but nothing after it.
    quorum.limit = quorum.disks[first].end
    quorum.start(first)
    assert elected(quorum) == first
    quorum.run(100)
    assert quorum.disks[other].end == quorum.limit, "a majority has the record"
    assert "old" not in [value for _, value in quorum.checks.committed]
    quorum.crash(first)
    quorum.limit = None
    quorum.start(leader)
    assert elected(quorum) == leader, "its log has the later epoch"


def elected(quorum: Quorum) -> int:
    """Run until there is a leader; returns it."""
    for _ in range(500):
        leader = quorum.leader()
        if leader is not None:
            return leader
        quorum.run(5)
    raise AssertionError(quorum.checks.fail("no leader"))


def separate(quorum: Quorum, node: int) -> None:
    """Let no message reach the node or leave it."""
    quorum.blocked = {pair for other in quorum.nodes for pair in ((node, other), (other, node))}
