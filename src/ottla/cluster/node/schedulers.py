"""Runs work of one node later: in threads, by timers of the event loop, and in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.common.completion import Completion

if TYPE_CHECKING:
    from ottla.common.timers import CallLater
    from ottla.common.work import Worker

# One thread per disk that a broker may have; a thread in fsync does not hold the interpreter's lock.
FLUSH_THREADS = 4


class FlushThreads:
    """Runs blocking file work in threads; results are delivered on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = FLUSH_THREADS) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="ottla-flush")

    def run(self, work: Callable[[], object]) -> Completion[None]:
        """Run `work` in a thread; the completion completes on the event loop."""
        completion: Completion[None] = Completion()

        def hand_over(future: Future[object]) -> None:
            error = future.exception()
            if isinstance(error, Exception):
                completion.fail(error)
            else:
                completion.complete(None)

        future = self._executor.submit(work)
        future.add_done_callback(lambda done: self._loop.call_soon_threadsafe(hand_over, done))
        return completion

    def close(self) -> None:
        """Wait for the work in progress."""
        self._executor.shutdown(wait=True)


@dataclass(slots=True)
class Schedulers:
    """The schedulers of one node; `worker` runs long requests in slices."""

    flush_threads: FlushThreads
    call_later: CallLater
    worker: Worker
