"""Work that grows with a request, done in slices: other clients are served between two of them.

One thread runs one event loop, so all clients wait while a handler runs. A handler (or an operation of the controller)
whose work grows with the request is therefore a generator: it yields between two items, and returns its answer.
`Worker.run` does a small one at once. A long one goes on in later iterations of the loop, each of which gives all
unfinished work together `ITERATION_MS`, round robin.

The rule for generators: no yield between a change and the checks that it rests on. What was read before a yield may
have changed after it, except immutable values such as a `MetadataImage`.

Large requests are held back before they are decoded (`may_decode`), at most `MOST_LARGE` are decoded and unfinished at
a time: what waits costs the bytes of its frame.
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
"""Calls in the next iteration of the loop."""

ITERATION_MS = 20
SLICE_MS = 4
# Of the time of an iteration, what is left for requests that come in during it.
RESERVED_MS = 8
MOST_LARGE = 4


class Client(Protocol):
    """The connection that work is done for."""

    closed: bool


class _Task:
    """Unfinished work."""

    __slots__ = ("client", "done", "is_large", "work")

    def __init__(self, work: Slices[Any], client: Client | None, *, is_large: bool) -> None:
        self.work = work
        self.client = client
        self.is_large = is_large
        self.done: Completion[Any] = Completion()


class Worker:
    """Does the unfinished work of one loop. Without `later` all work is done at once."""

    def __init__(self, clock: Clock, later: Later | None = None) -> None:
        self._monotonic_ms = clock.monotonic_ms
        self._later = later
        self._tasks: deque[_Task] = deque()
        self._held_back: deque[_Task] = deque()
        self._large = 0
        # Of this iteration of the loop.
        self._left_ms = ITERATION_MS
        self._scheduled = False

    @property
    def unfinished(self) -> int:
        """How many requests are to be gone on with; those that wait for a completion are not counted."""
        return len(self._tasks) + len(self._held_back)

    @property
    def has_time(self) -> bool:
        """Whether this iteration of the loop has time for more work."""
        return self._left_ms > 0

    def may_decode(self) -> bool:
        """Whether a large request may be decoded now."""
        return self._later is None or (self._left_ms > 0 and self._large < MOST_LARGE)

    def charge(self, began_ms: int) -> None:
        """Count what was done since then as work of this iteration."""
        spent_ms = self._monotonic_ms() - began_ms
        if spent_ms > 0:
            self._left_ms -= spent_ms
            self._go_on_later()

    def run(
        self, work: Slices[R | Completion[R]], client: Client | None = None, *, is_large: bool = False
    ) -> R | Completion[R]:
        """The result, or a completion of it. Raises what the work raises in its first slice."""
        waiting: Completion[Any] | None = None
        if self._left_ms > 0 or self._later is None:
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
        """A completion of the result of work that belongs to no request. Never raises."""
        result: Completion[R] = Completion()
        try:
            value = self.run(work)
        except Exception as error:  # noqa: BLE001 - not swallowed: the caller gets it
            result.fail(error)
        else:
            _hand_over(value, result)
        return result

    def hold_back(self, work: Slices[R | Completion[R]], client: Client) -> Completion[R]:
        """A completion of the result of work that begins with decoding a large request, once there is room for it."""
        task = _Task(work, client, is_large=True)
        self._held_back.append(task)
        self._go_on_later()
        return task.done

    def wait_for(self, answer: Completion[Any]) -> None:
        """Count a large request as unfinished until its answer is there."""
        self._large += 1
        answer.on_done(self._one_less)

    def _one_less(self, _: Completion[Any]) -> None:
        self._large -= 1
        if self._held_back:
            self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._scheduled and self._later is not None:
            self._scheduled = True
            self._later(self._iterate)

    def _iterate(self) -> None:
        """The share of one iteration of the loop: each task in turn gets a slice, until the time is up."""
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
            self._go_on_later()

    def _do_slice(self, task: _Task, until_ms: int) -> None:
        if task.client is not None and task.client.closed:
            task.work.close()
        else:
            try:
                self._go_on(task, self._advance(task.work, until_ms))
            except StopIteration as end:
                if task.is_large and isinstance(end.value, Completion):
                    self.wait_for(end.value)
                _hand_over(end.value, task.done)
            except Exception as error:  # noqa: BLE001 - not swallowed: the connection gets it and closes
                task.done.fail(error)
            else:
                return
        if task.is_large:
            self._one_less(task.done)

    def _advance(self, work: Slices[Any], until_ms: int) -> Completion[Any] | None:
        """Work until the time is up, or a completion has to be waited for; raises StopIteration with the result."""
        now_ms = self._monotonic_ms
        while True:
            waiting: Completion[Any] | None = next(work)
            if waiting is not None:
                if not waiting.done:
                    return waiting
            elif now_ms() >= until_ms and self._later is not None:
                return None

    def _go_on(self, task: _Task, waiting: Completion[Any] | None) -> None:
        """Go on with the task when it is its turn, or when what it waits for is done."""
        if waiting is not None:
            waiting.on_done(lambda _: self._go_on(task, None))
        elif self._later is None:
            self._do_slice(task, 0)
        else:
            self._tasks.append(task)
            self._go_on_later()


def _hand_over(result: Any, done: Completion[Any]) -> None:
    if isinstance(result, Completion):
        result.on_done(lambda it: _pass_on(it, done))
    else:
        done.complete(result)


def _pass_on(result: Completion[Any], done: Completion[Any]) -> None:
    try:
        value = result.result()
    except Exception as error:  # noqa: BLE001 - not swallowed: the connection gets it and closes
        done.fail(error)
    else:
        done.complete(value)
