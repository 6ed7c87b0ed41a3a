"""Waiting in tests, with a deadline and a description of the condition in the message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__tracebackhide__ = True
T = TypeVar("T")
WAIT_S = 10.0
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02


class NotInTime(AssertionError):
    """A condition did not become true before its deadline."""


def wait_until(
    predicate: Callable[[], T], timeout_s: float = WAIT_S, *, what: str | Callable[[], str] | None = None
) -> T:
    """Call the predicate until its result is true, and return it. Raises NotInTime after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise NotInTime(f"Not within {timeout_s:g} s: {said or getattr(predicate, '__name__', predicate)}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
    return answer
