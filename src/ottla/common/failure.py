"""The failure of a program, for the person who started it."""

from collections.abc import Iterator
from contextlib import contextmanager


class Failure(Exception):
    """The end of a program that failed, without a traceback: `problem` in one line, then lines with the next step."""

    def __init__(self, problem: str, *advice: str, exit_code: int = 1, command: str = "ottla") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.exit_code = exit_code
        self.command = command


@contextmanager
def failing_on(*kinds: type[Exception], about: str = "", exit_code: int = 2) -> Iterator[None]:
    """Raise Failure with the text of an exception of these kinds, after `about: `."""
    try:
        yield
    except kinds as error:
        raise Failure(f"{about}: {error}" if about else str(error), exit_code=exit_code) from error


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Raise Failure if the file of this name cannot be read."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{name} cannot be read: {error.strerror}", exit_code=2) from error
