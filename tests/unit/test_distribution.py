"""The workers of `make test` get groups first, then the tests of a file together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.distribution import UNIT_TESTS, FileScheduling


class Worker:
    """Records the tests that it receives."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.indexes: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indexes: list[int]) -> None:
        self.indexes += indexes

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduling(names: list[str], workers: int) -> tuple[FileScheduling, list[Any]]:
    config: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * workers,
        option=SimpleNamespace(loadscopereorder=True, verbose=0, debug=False),
        hook=SimpleNamespace(),
    )
    made = FileScheduling(config)
    nodes: list[Any] = [Worker() for _ in range(workers)]
    for node in nodes:
        made.add_node(node)
    for node in nodes:
        made.add_node_collection(node, names)
    made.schedule()
    return made, nodes


def run(names: list[str], workers: int) -> list[list[str]]:
    """Return the tests of each worker in their order. The workers complete their tests by turns."""
    made, nodes = scheduling(names, workers)
    done = [0] * workers
    while made.has_pending:
        for number, node in enumerate(nodes):
            if done[number] < len(node.indexes):
                made.mark_test_complete(node, node.indexes[done[number]])
                done[number] += 1
    assert all(node.shutting_down for node in nodes)
    assert not any(made.assigned_work.values()), "finished units are forgotten"
    return [[names[index] for index in node.indexes] for node in nodes]


def test_each_test_runs_once_and_a_file_in_one_worker() -> None:
    names = [f"tests/test_{file}.py::test_{number}" for file in range(9) for number in range(7)]
    by_worker = run(names, 3)
    assert sorted(name for each in by_worker for name in each) == sorted(names)
    files = [{name.partition("::")[0] for name in each} for each in by_worker]
    assert sum(len(each) for each in files) == 9
    assert all(files)


def test_groups_come_first_and_files_in_the_order_of_the_collection() -> None:
    names = ["a.py::test_1", "b.py::test_1[x@y]", "b.py::test_2", "c.py::test_1@g", "d.py::test_1", "e.py::test_1@g"]
    (order,) = run(names, 1)
    assert order == [
        "c.py::test_1@g",
        "e.py::test_1@g",
        "a.py::test_1",
        "b.py::test_1[x@y]",
        "b.py::test_2",
        "d.py::test_1",
    ]


def test_many_tests_of_a_file_go_to_several_workers() -> None:
    names = [f"a.py::test_{number}" for number in range(3 * UNIT_TESTS)]
    assert sorted(map(len, run(names, 2))) == [UNIT_TESTS, 2 * UNIT_TESTS]


def test_other_tests_of_a_crashed_worker_run_in_another_one() -> None:
    names = [f"{file}.py::test_{number}" for file in "abc" for number in range(3)]
    made, (first, second) = scheduling(names, 2)
    made.mark_test_complete(first, first.indexes[0])
    crashed, *lost = [names[index] for index in first.indexes[1:]]
    assert made.remove_node(first) == crashed
    for index in second.indexes:
        made.mark_test_complete(second, index)
    sent = {names[index] for index in second.indexes}
    assert set(lost) <= sent
    assert crashed not in sent
    assert not made.has_pending
    assert made.remove_node(second) is None
