"""The state of one task that its thread and the runtime share: stop, pause, and the task's report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from ottla.connect.runtime import Report

PAUSED: Final = "The task is paused by an operator."
"""The report of a paused task."""


class TaskControl:
    """Wishes go to the task's thread, the report comes from it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._stopping = False
        self._paused = False
        self._waits_for = ""
        self._tried = 0
        self._next_try_ms: int | None = None
        self._error = ""
        self._facts: dict[str, object] = {}

    # -- wishes ------------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the task should end soon."""
        return self._stopping

    @property
    def paused(self) -> bool:
        """Whether the task should not process records."""
        return self._paused

    def stop(self) -> None:
        """Have the task end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def pause(self, *, paused: bool) -> None:
        """Have the task pause or go on."""
        with self._changed:
            self._paused = paused
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until the task should end, at most `seconds`; returns whether it should."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)
            return self._stopping

    def wait_for_retry(self, seconds: float) -> None:
        """Wait for the next try, at most `seconds`: less if the task should pause or end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._paused, seconds)

    def wait_while_paused(self, seconds: float) -> None:
        """Wait until the task should go on or end, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._paused, seconds)

    # -- report ------------------------------------------------------------------------------------------------------

    def waits_for(self, event: str) -> None:
        """Say what a task without progress waits for; empty: it makes progress."""
        self._waits_for = event

    def retries(self, tried: int, next_try_ms: int | None, error: str) -> None:
        """Say how often the task was started again since its last success, when it is next, and after what."""
        self._tried, self._next_try_ms, self._error = tried, next_try_ms, error

    def repeats(self, error: str) -> None:
        """Say after what failure the task repeats an operation; empty: it has succeeded."""
        self._error = error
        self._waits_for = f"The task repeats an operation after a failure: {error}" if error else ""

    @property
    def tried(self) -> int:
        """How often the task was started again since its last success."""
        return self._tried

    def succeeded(self) -> None:
        """Forget failed tries."""
        self._tried, self._next_try_ms, self._waits_for, self._error = 0, None, "", ""

    def report_facts(self, facts: Mapping[str, object]) -> None:
        """Add or replace facts."""
        self._facts = {**self._facts, **facts}

    def report(self, hide: Callable[[str], str]) -> Report:
        """Return the report as it is now; `hide` removes secrets from its texts."""
        facts = {name: hide(value) if isinstance(value, str) else value for name, value in self._facts.items()}
        return Report(hide(self._waits_for), self._tried, self._next_try_ms, facts, hide(self._error))
