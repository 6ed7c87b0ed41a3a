"""The records of one writer: which were acknowledged and not yet read, and what readers got wrong.

Its size does not grow with the run: a number leaves the ledger as soon as it was acknowledged and read. The numbers of
a writer ascend, and it reports them in that order. A number is in partition `number % partitions`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

MOST_PROBLEMS = 20
ABORTED = 2_000
"""The number of aborted numbers that are remembered: several minutes of them, after which readers have passed them."""


class Ledger:
    """Compares the numbers of a writer and of its readers; for several threads."""

    def __init__(self, name: str, partitions: int, *, ordered: bool = True) -> None:
        """`ordered`: each number is read at most once, and the numbers of a partition in their order."""
        self.name = name
        self.acknowledged = 0
        self.problems: list[str] = []
        self._partitions = partitions
        self._ordered = ordered
        self._highest = -1
        self._unread: set[int] = set()
        # Read before their acknowledgement was noted.
        self._early: set[int] = set()
        self._doubtful: set[int] = set()
        self._aborted: deque[int] = deque(maxlen=ABORTED)
        self._last = dict.fromkeys(range(partitions), -1)
        self._lock = threading.Lock()

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """Note that these numbers are stored for certain."""
        with self._lock:
            for number in numbers:
                self.acknowledged += 1
                self._highest = number
                if number not in self._early:
                    self._unread.add(number)
            self._early = {number for number in self._early if number > self._highest}

    def doubt(self, numbers: Iterable[int]) -> None:
        """Note that these numbers may be stored, and may be stored late: their producer failed."""
        with self._lock:
            self._doubtful.update(numbers)

    def abort(self, numbers: Iterable[int]) -> None:
        """Note that no reader may read these numbers."""
        with self._lock:
            self._aborted.extend(numbers)

    def read(self, number: int) -> None:
        """Note that a reader got this number."""
        with self._lock:
            if number in self._aborted:
                self._report(f"{number} was aborted and read")
            partition = number % self._partitions
            if self._ordered and number not in self._doubtful and number <= self._last[partition]:
                self._report(f"{number} was read after {self._last[partition]}")
            self._last[partition] = max(number, self._last[partition])
            self._unread.discard(number)
            if number > self._highest:
                self._early.add(number)

    def unread(self) -> list[int]:
        """Return the acknowledged numbers that were not read yet."""
        with self._lock:
            return sorted(self._unread)

    def _report(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{self.name}: {problem}")
