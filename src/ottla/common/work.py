"""Runs work in slices, so that other clients are served between two slices of a long request.

One thread runs one event loop: while a handler runs, all clients wait. A handler (or an operation of the controller)
whose work grows with the request is therefore a generator that yields between two items and returns its response.
`Worker.run` finishes small work at once. Long work continues in later event loop iterations. Each iteration gives
`ITERATION_MS` to all unfinished work together, in slices of `SLICE_MS`, round robin. So a request waits for other work
no longer than one iteration, and the cost of slicing is one clock reading per yield.

The rule for generators: no yield between a change and the checks that it relies on. State that was read before a yield
may have changed after it, except immutable values such as a `MetadataImage`.

Large requests are decoded only when `may_decode` allows it. At most `MOST_LARGE` of them are decoded and unfinished at
a time; the others cost the bytes of their frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypeVar

from ottla.common.clock import Clock
from ottla.common.completion import Completion
from ottla.common.slices import Slices

R = TypeVar("R")

Later: TypeAlias = Callable[[Callable[[], None]], object]
"""Calls a function in the next event loop iteration."""

ITERATION_MS = 20
SLICE_MS = 4
# The part of an iteration that is reserved for requests that arrive during it.
RESERVED_MS = 8
MOST_LARGE = 4


class Client(Protocol):
    """The connection whose request is handled."""

    closed: bool


class _Task:
    """Work with its connection and the completion of its result."""

    __slots__ = ("client", "done", "is_large", "work")

    def __init__(self, work: Slices[Any], client: Client | None, *, is_large: bool) -> None:
        self.work = work
        self.client = client
        self.is_large = is_large
        self.done: Completion[Any] = Completion()


class Worker:
    """The unfinished work of one event loop. Without `later` all work is finished at once, in one slice."""

    def __init__(self, clock: Clock, later: Later | None = None) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self.later = later
        self._tasks: deque[_Task] = deque()
        self._held_back: deque[_Task] = deque()
        self._large = 0
        # The time that is left in this event loop iteration.
        self._left_ms = ITERATION_MS
        self._scheduled = False

    @property
    def unfinished(self) -> int:
        """How many tasks are ready to run; tasks that wait for a completion are not counted."""
        return len(self._tasks) + len(self._held_back)

    @property
    def has_time(self) -> bool:
        """Whether this event loop iteration has time for more work."""
        return self._left_ms > 0

    def may_decode(self) -> bool:
        """Whether a large request may be decoded now."""
        return self.later is None or (self._left_ms > 0 and self._large < MOST_LARGE)

    def next_iteration(self) -> Completion[None]:
        """Complete in the next event loop iteration: what happened until now is known then."""
        completion: Completion[None] = Completion()

        def complete() -> None:
            completion.complete(None)

        if self.later is None:
            complete()
        else:
            self.later(complete)
        return completion

    def charge(self, began_ms: int) -> None:
        """Charge the time since `began_ms` to this iteration."""
        spent_ms = self._monotonic_ms() - began_ms
        if spent_ms > 0:
            self._left_ms -= spent_ms
            self._schedule()

    def run(
        self, work: Slices[R | Completion[R]], client: Client | None = None, *, is_large: bool = False
    ) -> R | Completion[R]:
        """Run the first slice; return the result, or a completion of it. Raises the exceptions of the first slice."""
        waiting: Completion[Any] | None = None
        if self._left_ms > 0 or self.later is None:
            began_ms = self._monotonic_ms()
            try:
                waiting = self._advance(work, began_ms + min(SLICE_MS, self._left_ms))
            except StopIteration as end:
                result: R | Completion[R] = end.value
                return result
            finally:
                self.charge(began_ms)
        task = _Task(work, client, is_large=is_large)
        self._large += is_large
        self._go_on(task, waiting)
        return task.done

    def submit(self, work: Slices[R]) -> Completion[R]:
        """Run work that belongs to no request; return a completion of its result. Never raises."""
        task = _Task(work, None, is_large=False)
        if self._left_ms > 0 or self.later is None:
            began_ms = self._monotonic_ms()
            self._do_slice(task, began_ms + min(SLICE_MS, self._left_ms))
            self.charge(began_ms)
        else:
            self._go_on(task, None)
        return task.done

    def hold_back(self, work: Slices[R | Completion[R]], client: Client) -> Completion[R]:
        """Queue work that begins with decoding a large request; return a completion of its result."""
        task = _Task(work, client, is_large=True)
        self._held_back.append(task)
        self._schedule()
        return task.done

    def wait_for(self, answer: Completion[Any]) -> None:
        """Count a large request as unfinished until its response is complete."""
        self._large += 1
        answer.on_done(self._finished_large)

    def _finished_large(self, _: Completion[Any]) -> None:
        self._large -= 1
        if self._held_back:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and self.later is not None:
            self._scheduled = True
            self.later(self._iterate)

    def _iterate(self) -> None:
        """Run the tasks in one event loop iteration: round robin, a slice each, until the time is up."""
        self._scheduled = False
        self._left_ms = ITERATION_MS
        while self._left_ms > RESERVED_MS:
            while self._held_back and self._large < MOST_LARGE:
                self._large += 1
                self._tasks.append(self._held_back.popleft())
            if not self._tasks:
                break
            began_ms = self._monotonic_ms()
            self._do_slice(self._tasks.popleft(), began_ms + SLICE_MS)
            self._left_ms -= self._monotonic_ms() - began_ms
        can_go_on = self._tasks or (self._held_back and self._large < MOST_LARGE)
        if can_go_on or self._left_ms < ITERATION_MS:
            self._schedule()

    def _do_slice(self, task: _Task, until_ms: int) -> None:
        if task.client is not None and task.client.closed:
            task.work.close()
        else:
            try:
                self._go_on(task, self._advance(task.work, until_ms))
            except StopIteration as end:
                if task.is_large and isinstance(end.value, Completion):
                    self.wait_for(end.value)
                if isinstance(end.value, Completion):
                    task.done.follow(end.value)
                else:
                    task.done.complete(end.value)
            except Exception as error:  # noqa: BLE001 - the request fails with it; other tasks must go on
                task.done.fail(error)
            else:
                return
        if task.is_large:
            self._finished_large(task.done)

    def _advance(self, work: Slices[Any], until_ms: int) -> Completion[Any] | None:
        """Run until the time is up, or until the work waits for a completion, which is returned.

        Raises StopIteration with the result.
        """
        now_ms = self._monotonic_ms
        while True:
            waiting: Completion[Any] | None = next(work)
            if waiting is not None:
                if not waiting.done:
                    return waiting
            elif now_ms() >= until_ms and self.later is not None:
                return None

    def _go_on(self, task: _Task, waiting: Completion[Any] | None) -> None:
        """Queue the task, at once or when the completion that it waits for is done."""
        if waiting is not None:
            waiting.on_done(lambda _: self._go_on(task, None))
        elif self.later is None:
            self._do_slice(task, 0)
        else:
            self._tasks.append(task)
            self._schedule()
