"""The division of work: properties, and groups in which workers come, die and return at random."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.connect.cluster.assignor import Memory, Result, Round, assign
from ottla.connect.cluster.protocol import NO_WORK, Work
from ottla.connect.runtime import TaskId

DELAY_MS = 1000


def whole(connectors: int, tasks: int) -> Work:
    names = [f"c{number}" for number in range(connectors)]
    return Work(frozenset(names), frozenset(TaskId(name, each) for name in names for each in range(tasks)))


class Group:
    """Workers that apply results as `member.GroupMember` does."""

    def __init__(self, configured: Work, max_delay_ms: int = 0) -> None:
        self.configured = configured
        self.workers: dict[str, Work] = {}
        self.now_ms = 0
        self.memory = Memory()
        self.generation = 0
        self.max_delay_ms = max_delay_ms
        self.moves = 0
        self.leader = ""

    def join(self, name: str, work: Work = NO_WORK) -> None:
        self.workers[name] = work

    def kill(self, name: str) -> None:
        del self.workers[name]
        if name == self.leader:
            self.memory = Memory()  # of a new leader

    def rebalance(self) -> Result:
        self.leader = self.leader if self.leader in self.workers else min(self.workers)
        last = self.generation if self.memory.generation >= 0 else -1
        self.generation += 1
        round_ = Round(self.configured, self.workers, self.generation, last, self.now_ms, self.max_delay_ms)
        result = assign(round_, self.memory)
        before = dict(self.workers)
        self.memory = result.memory
        for name, share in result.shares.items():
            assert not share.added & share.revoked
            assert not share.revoked - before[name]
            self.moves += len(share.revoked.connectors) + len(share.revoked.tasks)
            self.workers[name] = (self.workers[name] - share.revoked) | share.added
        check_alone(before, result)
        return result

    def settle(self) -> None:
        """Rebalance until no member was revoked anything, which takes two rounds at most, and no delay is left."""
        for _ in range(8):
            result = self.rebalance()
            if result.delay_ms:
                self.now_ms += result.delay_ms
            elif not any(share.revoked for share in result.shares.values()):
                return
        raise AssertionError("the group does not settle")


def check_alone(before: Mapping[str, Work], result: Result) -> None:
    """Nothing is given to a member while another one still has it, or has to stop it."""
    for name, share in result.shares.items():
        for other, work in before.items():
            if other != name:
                assert not share.added & work, f"{share.added & work} is given to {name}, and {other} has it"
        for other, rest in result.shares.items():
            if other != name:
                assert not share.added & rest.added


def check_divided(group: Group) -> None:
    """Every piece has one owner, and the counts differ by at most one."""
    for kind in (0, 1):
        owned = [each for work in group.workers.values() for each in work[kind]]
        assert sorted(owned) == sorted(group.configured[kind])
        counts = [len(work[kind]) for work in group.workers.values()]
        assert max(counts) - min(counts) <= 1


_counts = st.integers(0, 6)
_workers = st.integers(1, 5)


@given(_counts, _counts, _workers)
@settings(max_examples=80, deadline=None)
def test_all_work_has_one_owner_and_is_balanced(connectors: int, tasks: int, workers: int) -> None:
    group = Group(whole(connectors, tasks))
    for number in range(workers):
        group.join(f"w{number}")
    group.settle()
    check_divided(group)


@given(_counts, _counts, _workers)
@settings(max_examples=80, deadline=None)
def test_a_new_worker_gets_its_share_and_nothing_else_moves(connectors: int, tasks: int, workers: int) -> None:
    group = Group(whole(connectors, tasks))
    for number in range(workers):
        group.join(f"w{number}")
    group.settle()
    before, group.moves = dict(group.workers), 0
    group.join("new")
    group.settle()
    check_divided(group)
    work = group.workers["new"]
    assert group.moves == len(work.connectors) + len(work.tasks)
    for name, had in before.items():
        assert group.workers[name] - had == NO_WORK


@given(_counts, _counts, st.integers(2, 5))
@settings(max_examples=80, deadline=None)
def test_a_group_that_is_balanced_does_not_move_work(connectors: int, tasks: int, workers: int) -> None:
    group = Group(whole(connectors, tasks))
    for number in range(workers):
        group.join(f"w{number}")
    group.settle()
    before = dict(group.workers)
    result = group.rebalance()
    assert group.workers == before
    assert not any(share.added or share.revoked for share in result.shares.values())


def three_workers(max_delay_ms: int) -> Group:
    group = Group(whole(3, 4), max_delay_ms)
    for name in "abc":
        group.join(name)
    group.settle()
    return group


def test_work_of_a_lost_worker_waits_for_it() -> None:
    group = three_workers(DELAY_MS)
    others = {name: group.workers[name] for name in "ab"}
    lost = group.workers["c"]
    group.kill("c")
    assert group.rebalance().delay_ms == DELAY_MS
    assert group.workers == others
    group.now_ms += 400
    assert group.rebalance().delay_ms == DELAY_MS - 400
    group.now_ms += 600
    assert group.rebalance().delay_ms == 0
    check_divided(group)
    for name, had in others.items():
        assert had - group.workers[name] == NO_WORK, "only the lost work moves"
    assert lost - (group.workers["a"] | group.workers["b"]) == NO_WORK


def test_a_worker_that_is_restarted_gets_its_work_back_at_once() -> None:
    group = three_workers(DELAY_MS)
    lost = group.workers["c"]
    group.kill("c")
    group.rebalance()
    group.join("c2")
    assert group.rebalance().delay_ms == 0
    assert group.workers["c2"] == lost


@pytest.mark.parametrize("restarted", ["w1", "w2"])
def test_a_worker_gets_its_work_back_also_if_others_have_as_little(restarted: str) -> None:
    """One connector and one task in a group of three: any of the idle workers would be as good by the counts."""
    group = Group(whole(1, 1), DELAY_MS)
    group.leader = "w0"
    for name, work in (("w0", NO_WORK), ("w1", NO_WORK), ("w2", NO_WORK)):
        group.join(name, work)
    group.workers[restarted] = whole(1, 1)
    group.settle()
    assert group.workers[restarted] == whole(1, 1)
    group.kill(restarted)
    assert group.rebalance().delay_ms
    group.join("z")
    group.rebalance()
    assert group.workers["z"] == whole(1, 1)


def test_without_a_delay_lost_work_moves_at_once() -> None:
    group = three_workers(0)
    group.kill("c")
    assert group.rebalance().delay_ms == 0
    check_divided(group)


def test_new_work_is_assigned_while_lost_work_waits() -> None:
    group = three_workers(DELAY_MS)
    group.kill("c")
    group.rebalance()
    group.configured |= Work(frozenset(["new"]), frozenset([TaskId("new", 0)]))
    group.rebalance()
    assert any("new" in work.connectors for work in group.workers.values())
    assert any(TaskId("new", 0) in work.tasks for work in group.workers.values())


def test_an_assignment_that_a_member_has_missed_is_repeated_without_a_delay() -> None:
    group = three_workers(DELAY_MS)
    group.workers["b"] = NO_WORK
    assert group.rebalance().delay_ms == 0
    check_divided(group)


def test_a_new_leader_knows_of_no_lost_work() -> None:
    group = three_workers(DELAY_MS)
    group.kill(group.leader)
    assert group.rebalance().delay_ms == 0
    check_divided(group)


def test_work_that_two_members_have_is_stopped_by_both_first() -> None:
    group = Group(whole(1, 1))
    group.join("a", group.configured)
    group.join("b", group.configured)
    group.rebalance()
    assert group.workers == {"a": NO_WORK, "b": NO_WORK}
    group.settle()
    check_divided(group)


def test_deleted_work_is_revoked() -> None:
    group = three_workers(DELAY_MS)
    group.configured = whole(1, 2)
    group.settle()
    check_divided(group)


@pytest.mark.parametrize("seed", range(40))
def test_groups_in_which_workers_come_and_die_divide_the_work(seed: int) -> None:
    draw = random.Random(seed)
    group = Group(whole(4, 3), draw.choice([0, DELAY_MS]))
    group.join("w0")
    for step in range(60):
        event = draw.random()
        if event < 0.3 and len(group.workers) < 6:
            group.join(f"w{step + 1}")
        elif event < 0.5 and len(group.workers) > 1:
            group.kill(draw.choice(sorted(group.workers)))
        elif event < 0.6:
            group.configured = whole(draw.randint(0, 5), draw.randint(0, 4))
        elif event < 0.7:
            group.workers[draw.choice(sorted(group.workers))] = NO_WORK  # it was removed, and has joined again
        group.now_ms += draw.randint(0, 400)
        group.rebalance()
        if draw.random() < 0.2:
            group.settle()
            check_divided(group)
    group.settle()
    check_divided(group)
