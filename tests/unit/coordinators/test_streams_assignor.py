"""The sticky task assignor: every task once, standby tasks in other processes, few moves, and an even load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinators.group.streams.assignor import MemberSpec, StreamsSpec, SubtopologySpec, assign_stickily
from ottla.coordinators.group.streams.tasks import Tasks, task_ids

STATEFUL, STATELESS = SubtopologySpec(4, True), SubtopologySpec(4, False)


def assign(
    members: dict[str, tuple[str, Tasks]], subtopologies: dict[str, SubtopologySpec], replicas: int = 0
) -> dict[str, Tasks]:
    specs = {name: MemberSpec(*member) for name, member in members.items()}
    return assign_stickily(StreamsSpec(specs, subtopologies, replicas))


def fresh(*names: str, process: str | None = None) -> dict[str, tuple[str, Tasks]]:
    return {name: (name if process is None else process, Tasks()) for name in names}


def again(members: dict[str, tuple[str, Tasks]], targets: dict[str, Tasks]) -> dict[str, tuple[str, Tasks]]:
    return {name: (process, targets.get(name, Tasks())) for name, (process, _) in members.items()}


def test_group_without_members_has_no_tasks() -> None:
    assert assign({}, {"0": STATEFUL}) == {}


def test_tasks_are_spread_evenly_over_processes_and_members() -> None:
    targets = assign(fresh("a", "b") | fresh("c", "d", process="x"), {"0": STATEFUL, "1": STATELESS})
    assert [len(list(task_ids(each.active))) for each in targets.values()] == [2, 2, 2, 2]


def test_same_members_keep_their_tasks() -> None:
    members = fresh("a", "b", "c")
    subtopologies = {"0": STATEFUL, "1": STATELESS}
    first = assign(members, subtopologies, 1)
    assert assign(again(members, first), subtopologies, 1) == first


def test_new_member_takes_only_as_many_tasks_as_it_needs() -> None:
    members = fresh("a", "b")
    first = assign(members, {"0": STATEFUL, "1": STATEFUL})
    second = assign(again(members | fresh("c"), first), {"0": STATEFUL, "1": STATEFUL})
    kept = sum(len(set(task_ids(first[name].active)) & set(task_ids(second[name].active))) for name in members)
    assert kept == 6, "two of eight tasks move"


def test_standby_task_becomes_the_active_one_when_its_owner_leaves() -> None:
    members = fresh("a", "b", "c")
    subtopologies = {"0": SubtopologySpec(6, True)}
    first = assign(members, subtopologies, 1)
    left = {name: member for name, member in again(members, first).items() if name != "a"}
    second = assign(left, subtopologies, 1)
    lost = set(task_ids(first["a"].active))
    promoted = [set(task_ids(first[name].standby)) & set(task_ids(second[name].active)) for name in left]
    assert len(lost) == 2
    assert len(set().union(*promoted) & lost) >= 1, "the others have no room for both"


def test_standby_tasks_are_omitted_if_there_are_too_few_processes() -> None:
    targets = assign(fresh("a", "b", process="one"), {"0": STATEFUL}, 2)
    assert all(not each.standby for each in targets.values())


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[dict[str, str]], dict[str, SubtopologySpec], int]:
    """Some successive memberships (member to process), subtopologies and replicas."""
    names = st.sampled_from([f"m{i}" for i in range(6)])
    processes = st.sampled_from(["p", "q", "r"])
    rounds = draw(st.lists(st.dictionaries(names, processes, min_size=1), min_size=1, max_size=4))
    specs = st.builds(SubtopologySpec, st.integers(1, 7), st.booleans())
    return rounds, draw(st.dictionaries(st.sampled_from("012"), specs, min_size=1)), draw(st.integers(0, 2))


@given(worlds())
def test_each_task_is_active_once_and_has_its_replicas_elsewhere(
    world: tuple[list[dict[str, str]], dict[str, SubtopologySpec], int],
) -> None:
    rounds, subtopologies, replicas = world
    targets: dict[str, Tasks] = {}
    for processes in rounds:
        members = {name: (process, targets.get(name, Tasks())) for name, process in processes.items()}
        targets = assign(members, subtopologies, replicas)
        active = sorted(task for each in targets.values() for task in task_ids(each.active))
        assert active == sorted((name, i) for name, row in subtopologies.items() for i in range(row.tasks))
        copies = min(replicas, len(set(processes.values())) - 1)
        for task in active:
            owners = [processes[name] for name, each in targets.items() if task in set(task_ids(each.active))]
            standby = [processes[name] for name, each in targets.items() if task in set(task_ids(each.standby))]
            assert len(standby) == (copies if subtopologies[task[0]].is_stateful else 0)
            assert len({*owners, *standby}) == len(owners) + len(standby), "a process has the task once"
