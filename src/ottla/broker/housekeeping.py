"""What a broker does by the clock: checkpoints, retention, compaction, expiry of producers, flush.ms.

Each chore runs on the event loop in short steps; what takes long is done by the log room in another process or a
worker thread. A chore that fails is logged and tried again at its next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.common.errors import KafkaError

logger = logging.getLogger(__name__)


class Housekeeping:
    """Calls chores at their intervals until stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._turns: list[Callable[[], None]] = []
        self._stopped = False

    def every(self, name: str, interval_ms: int, chore: Callable[[], object], *, first_ms: int | None = None) -> None:
        """Call `chore` each `interval_ms`, first after `first_ms` (default: the interval)."""

        def turn() -> None:
            try:
                chore()
            except (KafkaError, OSError) as error:
                logger.warning("Task %s failed and will be retried: %s", name, error)
            finally:  # a mistake of ours ends up in the loop's log, and not the chore
                schedule(interval_ms)

        def schedule(delay_ms: int) -> None:
            if not self._stopped:
                self._timers[name] = self._loop.call_later(delay_ms / 1000, turn)

        self._turns.append(turn)
        schedule(interval_ms if first_ms is None else first_ms)

    def do_all(self) -> None:
        """Every chore now, and its next turn an interval later."""
        for timer in self._timers.values():
            timer.cancel()
        for turn in self._turns:
            turn()

    def stop(self) -> None:
        """No chore runs any more."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
