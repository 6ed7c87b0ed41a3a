"""`Completion`: a result that comes later, without an event loop.

The broker's hot path answers most requests at once; those that must wait (a long poll, a rebalance, an fsync) return
a `Completion`. Callbacks run at once in `complete`, on the caller's stack, so that a request costs no extra turn of
the loop. Single-threaded: a worker thread hands its result over with `loop.call_soon_threadsafe`.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Completion(Generic[T]):
    """Completed once, with a value or an error; later attempts are ignored and return False."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[Completion[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> "Completion[T]":
        """One that is done already."""
        completion = cls()
        completion.complete(value)
        return completion

    @classmethod
    def failed(cls, error: Exception) -> "Completion[T]":
        """One that has failed already."""
        completion: Completion[T] = cls()
        completion.fail(error)
        return completion

    @property
    def error(self) -> Exception | None:
        """The error that it failed with, if it failed."""
        return self._error

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
        self._error = error
        self._finish()
        return True

    def result(self) -> T:
        """The value, or the error raised. Only to be called when `done`."""
        if not self.done:
            raise RuntimeError("the completion has no result yet")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set by `complete`

    def on_done(self, callback: "Callable[[Completion[T]], None]") -> None:
        """Call `callback(self)` when done; at once if it is."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, make: "Callable[[T], R]") -> "Completion[R]":
        """What `make` makes of the value once it is there. An error passes through; one that `make` raises fails it."""
        made: Completion[R] = Completion()

        def finish(done: Completion[T]) -> None:
            try:
                value = make(done.result())
            except Exception as error:  # noqa: BLE001 - not swallowed: whoever waits gets it
                made.fail(error)
            else:
                made.complete(value)

        self.on_done(finish)
        return made

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)
