"""`Completion`: a result that comes later, without an event loop.

The broker answers most requests at once. A request that has to wait (a long poll, a rebalance, an fsync) returns a
`Completion`. Callbacks run in `complete`, on the caller's stack, so that a request costs no extra event loop
iteration. Not thread-safe: a worker thread hands its result over with `loop.call_soon_threadsafe`.

Every waiter gets an answer: `complete_with` turns any exception into the error of the completion.
"""

from collections.abc import Callable, Sequence
from typing import Generic, ParamSpec, TypeVar

from ottla.common.errors import ExpectedError, KafkaError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Completion(Generic[T]):
    """Completed once, with a value or an error; later attempts are ignored and return False."""

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: Exception | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> "Completion[T]":
        """A completion that is done already."""
        completion = cls()
        completion.complete(value)
        return completion

    @classmethod
    def failed(cls, error: Exception) -> "Completion[T]":
        """A completion that has failed already."""
        completion: Completion[T] = cls()
        completion.fail(error)
        return completion

    def complete(self, value: T) -> bool:
        """Set the value and run the callbacks; False if it was done before."""
        if self.done:
            return False
        self._value = value
        self._finish()
        return True

    def fail(self, error: Exception) -> bool:
        """Set the error and run the callbacks; False if it was done before."""
        if self.done:
            return False
        self.error = error
        self._finish()
        return True

    def complete_with(self, make: "Callable[P, T]", *args: P.args, **kwargs: P.kwargs) -> None:
        """Complete with the result of `make`, or fail with its exception."""
        try:
            value = make(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the waiter gets it: without an answer it would wait for ever
            self.fail(error)
        else:
            self.complete(value)

    def follow(self, other: "Completion[T]") -> None:
        """Complete or fail as soon as `other` does, and with the same result."""

        def copy(done: Completion[T]) -> None:
            if done.error is not None:
                self.fail(done.error)
            else:
                self.complete(done.result())

        other.on_done(copy)

    def result(self) -> T:
        """The value, or the error raised. Only to be called when `done`."""
        if not self.done:
            raise RuntimeError("the completion has no result yet")
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]  # set by `complete`

    def on_done(self, callback: "Callable[[Completion[T]], None]") -> None:
        """Call `callback(self)` when done, or now if it is done already."""
        if self.done:
            callback(self)
            self._free_frames()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, make: "Callable[[T], R]") -> "Completion[R]":
        """A completion of `make(value)`. It fails with this completion's error, or with the exception of `make`."""
        made: Completion[R] = Completion()
        self.on_done(lambda done: made.complete_with(lambda: make(done.result())))
        return made

    def otherwise(self, make: "Callable[[KafkaError], T]") -> "Completion[T]":
        """A completion of the same value, or of `make(error)` after a KafkaError; other errors pass through."""

        def value_or_response(done: Completion[T]) -> T:
            try:
                return done.result()
            except KafkaError as error:
                return make(error)

        made: Completion[T] = Completion()
        self.on_done(lambda done: made.complete_with(value_or_response, done))
        return made

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback(self)
            self._free_frames()

    def _free_frames(self) -> None:
        """Remove the traceback of an expected error, after the callbacks.

        `result` raises the error in a callback. The traceback refers to the frames of the callback, which refer to
        this object and so to the error: a cycle that only a garbage collection frees. A broker without its neighbour
        makes many of them each second.
        """
        if isinstance(self.error, ExpectedError):
            self.error.__traceback__ = None


DONE: Completion[None] = Completion.of(None)
"""For work that was finished at once. It is shared, since a completion that is done does not change."""


def gather(parts: Sequence[Completion[T]], merge: Callable[[list[T]], R]) -> Completion[R]:
    """Complete with `merge` of all results, in their order, when the last part is done; a part's error fails it."""
    whole: Completion[R] = Completion()
    remaining = len(parts)

    def merge_results() -> R:
        return merge([part.result() for part in parts])

    def one_done(_part: Completion[T]) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            whole.complete_with(merge_results)

    if not parts:
        whole.complete_with(merge_results)
    for part in parts:
        part.on_done(one_done)
    return whole
