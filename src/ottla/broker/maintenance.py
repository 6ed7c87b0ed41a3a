"""The periodic tasks of one broker: what `Housekeeping` runs, and how often.

Retention and the expiration of producer ids depend on the age of records, and so on the wall clock. If the wall clock
jumped since such a task last ran, the task is skipped once: a clock that is wrong for a moment must not delete records.

A checkpoint is written in a thread, and skipped while the previous one of its kind is still being written. On a slow
disk the checkpoints would otherwise queue, and every flush would wait behind more and more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from ottla.common.completion import Completion
from ottla.common.work import SLICE_MS
from ottla.coordination import late

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.housekeeping import Housekeeping
    from ottla.config import BrokerConfig
    from ottla.log.cleaner import Cleaner

logger = logging.getLogger(__name__)

RETENTION, PRODUCER_EXPIRATION = "retention", "expiry of producers"
_FLUSH_MS = 2_000
_REMOVE_MS = 5_000
# New logs get their files in slices, which together take less than a twentieth of the processor's time.
_CREATION_MS = 100
_JUMP_S = 600
# Kafka allows an interval of 0, which would leave the event loop no time for requests.
_SHORTEST_MS = 50


class CleanerSettings(TypedDict):
    """The settings of compaction that may change while the broker runs."""

    backoff_ms: int
    dedupe_buffer_bytes: int
    load_factor: float


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """The settings of compaction from the broker's settings."""
    return CleanerSettings(
        backoff_ms=config.int("log.cleaner.backoff.ms"),
        dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        load_factor=config.float("log.cleaner.io.buffer.load.factor"),
    )


class MaintenanceTasks:
    """Schedules the tasks from `start` on. The caller stops `housekeeping` and then calls `close`."""

    def __init__(self, broker: Broker, housekeeping: Housekeeping) -> None:
        self._broker = broker
        self._housekeeping = housekeeping
        self._clock = broker.clock
        self._cleaner: Cleaner | None = None
        # The sum of all high watermarks at the last checkpoint.
        self._watermarks = -1
        # For each task: the difference between the wall clock and the monotonic clock when it last ran.
        self._clock_ahead_ms: dict[str, int] = {}
        for task in (RETENTION, PRODUCER_EXPIRATION):
            self._clock_jumped(task)

    def start(self) -> None:
        """Schedule all tasks."""
        config, logs = self._broker.settings.static, self._broker.logs
        first_ms = config.int("log.initial.task.delay.ms")

        def every(name: str, setting: str, task: Callable[[], object], first_ms: int | None = first_ms) -> None:
            self._housekeeping.every(name, max(config.int(setting), _SHORTEST_MS), task, first_ms=first_ms)

        every(RETENTION, "log.retention.check.interval.ms", self._retention)
        every(PRODUCER_EXPIRATION, "producer.id.expiration.check.interval.ms", self._expire_producers)
        every(
            "checkpoint of recovery points",
            "log.flush.offset.checkpoint.interval.ms",
            self._in_background(logs.checkpoint_recovery_points),
        )
        every(
            "checkpoint of log starts",
            "log.flush.start.offset.checkpoint.interval.ms",
            self._in_background(logs.checkpoint_log_starts),
        )
        write_watermarks = self._in_background(logs.checkpoint_high_watermarks)
        every(
            "checkpoint of high watermarks",
            "replica.high.watermark.checkpoint.interval.ms",
            lambda: self._checkpoint_high_watermarks(write_watermarks),
            None,
        )
        # Rolled segments are synced by this task too, so that it runs at least this often whatever the setting is.
        flush_ms = min(max(config.int("log.flush.scheduler.interval.ms"), _SHORTEST_MS), _FLUSH_MS)
        self._housekeeping.every("flushing", flush_ms, self._flush)
        logs.planned.on_added = self._plan_creation
        self._plan_creation()
        self._housekeeping.every("removal of deleted files", _REMOVE_MS, self._remove_deleted)
        self._housekeeping.every("metadata snapshots", 1_000, self._broker.metadata.tick)
        if config.bool("log.cleaner.enable"):
            self._housekeeping.every("compaction", 1_000, self._compact)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        if self._cleaner is not None:
            self._cleaner.configure(**cleaner_settings(config))

    def close(self) -> None:
        """End a compaction in progress."""
        if self._cleaner is not None:
            self._cleaner.close()

    def _in_background(self, work: Callable[[], object]) -> Callable[[], bool]:
        """A task that starts `work` in a thread and returns True, or returns False while the last `work` runs."""
        last: Completion[None] = Completion.of(None)

        def task() -> bool:
            nonlocal last
            if not last.done:
                return False
            last = self._broker.schedulers.flush_threads.run(work)
            last.on_done(lambda done: done.result())
            return True

        return task

    def _retention(self) -> None:
        if not self._clock_jumped(RETENTION):
            self._broker.logs.cleanup(self._clock.wall_ms())

    def _expire_producers(self) -> None:
        if not self._clock_jumped(PRODUCER_EXPIRATION):
            self._broker.logs.expire_producers(self._clock.wall_ms())

    def _clock_jumped(self, task: str) -> bool:
        """Whether the wall clock was set since the task last ran."""
        ahead_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        before_ms = self._clock_ahead_ms.get(task, ahead_ms)
        self._clock_ahead_ms[task] = ahead_ms
        jump_s = (ahead_ms - before_ms) / 1000
        if abs(jump_s) < _JUMP_S:
            return False
        logger.warning("The clock was set by %+d s: %s is skipped once", jump_s, task)
        return True

    def _remove_deleted(self) -> None:
        self._broker.logs.remove_deleted(self._clock.wall_ms())

    def _plan_creation(self) -> None:
        self._housekeeping.once("creation of files", _CREATION_MS, self._create_files)

    def _create_files(self) -> None:
        planned, end_ms = self._broker.logs.planned, self._clock.monotonic_ms() + SLICE_MS
        try:
            while planned.create_next() and self._clock.monotonic_ms() < end_ms:
                pass
        finally:  # an unhandled error must not end the creation
            if len(planned):
                self._plan_creation()

    def _compact(self) -> None:
        if self._cleaner is None:
            self._cleaner = late.Cleaner(self._broker.logs, **cleaner_settings(self._broker.settings.current))
        self._cleaner.step(self._clock.wall_ms())

    def _flush(self) -> None:
        now_ms = self._clock.wall_ms()
        for partition in self._broker.partitions:
            partition.flush_if_due(now_ms)
        for followed in self._broker.partitions.followed():
            followed.flush_if_due(now_ms)

    def _checkpoint_high_watermarks(self, write: Callable[[], bool]) -> None:
        # An idle broker writes nothing.
        total = sum(log.high_watermark for log in self._broker.logs.all())
        if total != self._watermarks and write():
            self._watermarks = total
