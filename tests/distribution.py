"""How pytest-xdist distributes tests among its workers with `--dist loadgroup`.

pytest-xdist sends each test outside of a group on its own. The tests of a file then run in all workers, and each worker
starts the servers that the tests of the file share. Here a unit of work has up to UNIT_TESTS tests of one file.

The groups come first, because one worker runs a whole group. The files follow in the order of the collection. It ends
with `tests/unit`, whose units are short, so all workers end at about the same time.

After each test, pytest-xdist counts all tests that it ever sent to the worker. For each test that it sends, it searches
the list of all tests. Both take quadratic time. Here a finished unit is forgotten, and an index is looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

UNIT_TESTS = 100


class _Names(list[str]):
    """The names of all tests in the order of the collection. Finds the index of a name in constant time."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        self._indexes = {name: index for index, name in enumerate(self)}

    def index(self, name: str, *_: object) -> int:
        return self._indexes[name]


class FileScheduling(LoadGroupScheduling):
    """Gives groups, then parts of files to the workers."""

    _unit_of: dict[str, str] | None = None
    """The units of tests outside of groups. None until all workers have collected the tests."""

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = _Names(collection)

    def schedule(self) -> None:
        if self._unit_of is None:
            self._unit_of = {}
            tests_of_file: Counter[str] = Counter()
            for name in next(iter(self.registered_collections.values())):
                if super()._split_scope(name) == name:
                    file = name.partition("::")[0]
                    self._unit_of[name] = f"{file}, part {tests_of_file[file] // UNIT_TESTS}"
                    tests_of_file[file] += 1
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the test's unit."""
        unit = (self._unit_of or {}).get(nodeid)
        return super()._split_scope(nodeid) if unit is None else unit

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not any(self.assigned_work.values()):
            # Nothing was sent yet: the queue has the units in the order of their numbers of tests.
            for unit in dict.fromkeys((self._unit_of or {}).values()):
                if unit in self.workqueue:
                    self.workqueue.move_to_end(unit)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        unit = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][unit].values()):
            del self.assigned_work[node][unit]

    def remove_node(self, node: WorkerController) -> str | None:
        """Remove a worker that ended or crashed. Return the test that it ran then, which no other worker repeats.

        pytest-xdist would send it again, and the next worker would crash.
        """
        for unit in self.assigned_work[node].values():
            for name, is_done in unit.items():
                if not is_done:
                    unit[name] = True
                    super().remove_node(node)
                    return name
        super().remove_node(node)
        return None
