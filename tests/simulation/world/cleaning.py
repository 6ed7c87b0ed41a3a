"""The cleaner of a simulated node: its worker process does a job at one moment, and ends some time after it.

Between its start, this moment and its end, anything may happen to the log: retention deletes segments that the worker
has or has not read, the partition is deleted or moves, the node is killed during any write of the worker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ottla.common.errors import KafkaError
from ottla.log.cleaner import Cleaner
from ottla.log.compaction import CleanJob, CleanResult, clean

if TYPE_CHECKING:
    from ottla.log.files import Files
    from ottla.log.manager import LogManager
    from tests.simulation.world.process_loop import ProcessLoop

TAKES_US = (100, 20_000, 200_000, 1_000_000)
STEP_S = 0.1


class SimulatedWork:
    """A job of the worker process."""

    def __init__(self, process: ProcessLoop, job: CleanJob, files: Files) -> None:
        self._job, self._files = job, files
        self._outcome: CleanResult | str | None = None
        self._is_done = self._is_stopped = False
        self._process = process
        process.soon(self._clean, self._delay_us())

    def _delay_us(self) -> int:
        return self._process.machines.random.choice(TAKES_US)

    def _clean(self) -> None:
        if self._is_stopped:
            return
        self._process.soon(self._end, self._delay_us())
        # The process has files of its own, and passes the job and its result as JSON.
        release = self._files.release_descriptor
        try:
            result = clean(CleanJob.from_json(self._job.to_json()), self._files)
            self._outcome = CleanResult.from_json(result.to_json())
        except (OSError, KafkaError) as error:
            self._outcome = f"the worker ended with 1: {error!r}"
        finally:
            self._files.release_descriptor = release

    def _end(self) -> None:
        self._is_done = True

    def poll(self) -> CleanResult | str | None:
        """See `ottla.log.cleaner.Work`."""
        return self._outcome if self._is_done else None

    def stop(self) -> None:
        """See `ottla.log.cleaner.Work`."""
        self._is_stopped = True


def simulated_cleaner(manager: LogManager, **settings: Any) -> Cleaner:
    """A `Cleaner` of the running process. It looks for work more often than each second."""
    process: Any = asyncio.get_running_loop()
    cleaner = Cleaner(manager, start_work=lambda job: SimulatedWork(process, job, manager.files), **settings)

    def step() -> None:
        cleaner.step(manager.clock.wall_ms())
        process.call_later(STEP_S, step)

    process.call_later(STEP_S, step)
    return cleaner
