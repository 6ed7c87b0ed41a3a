"""Periodic tasks of a broker: checkpoints, retention, compaction, producer expiration, flush.ms.

Each task runs on the event loop in short steps; `log` does long work in another process or a worker thread. A task that
fails with a KafkaError or OSError is logged and runs again after its interval. After any other exception it is
scheduled again too, and the exception goes to the event loop's handler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.common.errors import KafkaError

logger = logging.getLogger(__name__)


class Housekeeping:
    """Runs tasks at their intervals until stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # Of the tasks that run once.
        self._single_timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: list[Callable[[], None]] = []
        self._stopped = False

    def every(self, name: str, interval_ms: int, task: Callable[[], object], *, first_ms: int | None = None) -> None:
        """Run `task` each `interval_ms`, first after `first_ms` (default: the interval)."""

        def run() -> None:
            try:
                task()
            except (KafkaError, OSError) as error:
                logger.warning("Task %s failed and will be retried: %s", name, error)
            finally:  # an unhandled error must not end the task
                schedule(interval_ms)

        def schedule(delay_ms: int) -> None:
            if not self._stopped:
                self._timers[name] = self._loop.call_later(delay_ms / 1000, run)

        self._tasks.append(run)
        schedule(interval_ms if first_ms is None else first_ms)

    def once(self, name: str, delay_ms: int, task: Callable[[], object]) -> None:
        """Run `task` after `delay_ms`, unless a task of this name is waiting."""

        def run() -> None:
            del self._single_timers[name]
            task()

        if name not in self._single_timers and not self._stopped:
            self._single_timers[name] = self._loop.call_later(delay_ms / 1000, run)

    def do_all(self) -> None:
        """Run every periodic task now, and again after its interval."""
        for timer in self._timers.values():
            timer.cancel()
        for run in self._tasks:
            run()

    def stop(self) -> None:
        """Run no task any more."""
        self._stopped = True
        for timer in (*self._timers.values(), *self._single_timers.values()):
            timer.cancel()
