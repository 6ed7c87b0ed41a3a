"""The flushes of a partition's log, which block: in a worker thread, one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ottla.common.completion import Completion

if TYPE_CHECKING:
    from ottla.log import Log

FlushInThread: TypeAlias = "Callable[[Callable[[], object]], Completion[None]]"
"""Runs a function in a worker thread."""


class Flush:
    """Flushes a log in a worker thread."""

    __slots__ = ("_in_thread", "is_running")

    def __init__(self, in_thread: FlushInThread) -> None:
        self._in_thread = in_thread
        self.is_running = False

    def start(self, log: Log, ended: Callable[[Completion[None]], None]) -> None:
        """Flush the log, and call `ended` afterwards; not while it is running."""
        self.is_running = True

        def finish(done: Completion[None]) -> None:
            self.is_running = False
            ended(done)

        self._in_thread(log.flush).on_done(finish)
