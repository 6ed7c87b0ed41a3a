"""The queue of the controller's operations: each is decided on the results of the previous ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.common.completion import Completion
from ottla.common.slices import Slices
from ottla.controller import Controller, Outcome

if TYPE_CHECKING:
    from ottla.common.work import Worker

R = TypeVar("R")
Operation: TypeAlias = Callable[[Controller], "Outcome[R] | Slices[Outcome[R]]"]


class Operations:
    """The waiting operations; `decide(operation, completion)` decides one, on `worker`."""

    def __init__(self, worker: Worker, decide: Callable[[Operation[Any], Completion[Any]], Slices[None]]) -> None:
        self.worker = worker
        self.is_deciding = False
        self._decide = decide
        self._waiting: deque[tuple[Operation[Any], Completion[Any]]] = deque()

    def submit(self, operation: Operation[R]) -> Completion[R]:
        """Decide the operation after those that wait; returns the completion that `decide` receives."""
        completion: Completion[R] = Completion()
        self._waiting.append((operation, completion))
        if not self.is_deciding:
            self.is_deciding = True
            self.worker.run(self._decide_all())
        return completion

    def fail(self, error: Exception) -> None:
        """Fail the waiting operations."""
        while self._waiting:
            self._waiting.popleft()[1].fail(error)

    def _decide_all(self) -> Slices[None]:
        try:
            while self._waiting:
                yield from self._decide(*self._waiting.popleft())
                yield
        finally:
            self.is_deciding = False
