"""One Spark query while its pipeline runs: its start, its restarts after failures, and its stop."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.common import units
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.spark.internals.sessions import ensure_active
from ottla.streams.errors import PipelineFailed, StreamsError
from ottla.streams.failures import Failure, Restarts, classify, text_of
from ottla.streams.outputs import Query, start_query
from ottla.streams.planning import Plan
from ottla.streams.progress import Progress
from ottla.streams.settings import Settings
from ottla.streams.slow_tasks import SlowTasks
from ottla.streams.status import RUNS, Phase, Problem, Status

logger = logging.getLogger("ottla.streams")

REPORT_S: Final = 10.0
"""How long to wait until Spark has reported a finished micro-batch."""
AVAILABLE_S: Final = 600.0
"""How long to wait for the records of a query."""
CLOCK_S: Final = 120.0
"""How long to wait for the records of a query that Spark cannot wait for."""


@dataclass
class RunningQuery:
    """A query, its execution by Spark, and its restarts."""

    plan: Plan
    query: Query
    progress: Progress
    execution: StreamingQuery | None = None
    """None before the first start, between a failure and the restart, and after the end."""
    restarts: Restarts = field(default_factory=Restarts)
    start_at_s: float = 0.0
    """When to restart, on the monotonic clock."""
    batches_at_start: int = 0
    phase: Phase = "running"
    problem: Problem | None = None
    busy_since_ms: int | None = None
    slow_tasks: SlowTasks | None = None

    @property
    def is_starting(self) -> bool:
        """Whether Spark creates the sources of the query, each with a Python process of its own."""
        execution = self.execution
        if execution is None or not execution.isActive:
            return False
        return str(execution.status["message"]).startswith("Initializing")

    def status(self, now_ms: int) -> Status:
        """The status of the query at this time."""
        found = self.progress.status(self.query.name)
        return replace(
            found,
            phase=self.phase,
            at_ms=now_ms,
            problem=self.problem,
            busy_since_ms=self.busy_since_ms,
            slow=None if self.slow_tasks is None else self.slow_tasks.slow,
        )

    def note_busy(self, now_ms: int) -> None:
        """Record since when a micro-batch runs, if one does, and which of its tasks is slow."""
        is_busy = self.execution is not None and _has_batch(self.execution)
        self.busy_since_ms = (self.busy_since_ms or now_ms) if is_busy else None
        if self.execution is not None and self.slow_tasks is not None:
            self.slow_tasks.watch(str(self.execution.runId), self.status(now_ms), now_ms)

    def start(self, spark: SparkSession, settings: Settings) -> None:
        """Start the query from its checkpoint, or set when to try again. Raises PipelineFailed, StreamsError."""
        self.batches_at_start = self.progress.batches(self.query.name)
        ensure_active(spark)
        if self.slow_tasks is None:
            self.slow_tasks = SlowTasks(self.query, self.plan.pipeline, settings)
        try:
            self.execution = start_query(self.query, self.plan.pipeline, settings)
        except SPARK_ERRORS as error:
            self.execution = None
            self.start_at_s = time.monotonic() + self._count_restart(error)
            return
        self.phase = "running"
        logger.info("Started query %s", self.query.name)

    def end(self, now_s: float) -> bool:
        """Return whether the query, which Spark has ended, is done; if not, set when to restart it.

        Raises PipelineFailed.
        """
        assert self.execution is not None
        error = self.execution.exception()
        self.execution = None
        if self.slow_tasks is not None:
            self.slow_tasks.close()
        if error is not None:
            self.start_at_s = now_s + self._count_restart(error)
            return False
        self.phase = "done"
        logger.info("Query %s has processed all records", self.query.name)
        return True

    def stop(self, deadline_s: float) -> None:
        """Stop the query between two micro-batches, or after the deadline in one."""
        if self.phase in RUNS:
            self.phase = "stopped"
        if self.slow_tasks is not None:
            self.slow_tasks.close()
        try:
            if self.execution is not None:
                _stop_after_batch(self.execution, deadline_s)
                self._wait_for_report(self.execution)
        finally:
            self.busy_since_ms = None

    def process_available(self) -> float | None:
        """Wait until the records of now are processed and reported.

        Returns None, or after how many seconds to restart the query. Raises PipelineFailed, StreamsError.
        """
        if self.execution is None:
            return max(0.0, self.start_at_s - time.monotonic())
        try:
            if self.query.has_clock:
                self._process_by_clock(self.execution)
            else:
                self._process_all(self.execution)
        except SPARK_ERRORS as error:
            return self._count_restart(error)
        self._wait_for_report(self.execution)
        return None

    def _process_all(self, execution: StreamingQuery) -> None:
        """Wait until the records of now are processed. Raises StreamsError, and Spark exceptions.

        Spark's call has no deadline. In a thread, with a connection to Java of its own, it does not keep this thread
        from calling Java afterwards, to stop the query.
        """
        errors: list[Exception] = []

        def wait() -> None:
            try:
                execution.processAllAvailable()
            except Exception as error:  # noqa: BLE001 - raised below, in the thread that waits
                errors.append(error)

        thread = threading.Thread(target=wait, name="ottla-streams-wait", daemon=True)
        thread.start()
        thread.join(AVAILABLE_S)
        if thread.is_alive():
            raise StreamsError(
                f"Query {self.query.name} has not processed its records in {AVAILABLE_S:g} s: "
                f"{execution.status['message']}"
            )
        if errors:
            raise errors[0]

    def _wait_for_report(self, execution: StreamingQuery) -> None:
        """Wait for the report about the last micro-batch, which Spark sends a moment after its end."""
        deadline_s = time.monotonic() + REPORT_S
        while self.progress.last_batch(self.query.name) < _last_batch(execution):
            if time.monotonic() >= deadline_s:
                logger.warning("Query %s has not reported its last batch in %g s", self.query.name, REPORT_S)
                break
            time.sleep(0.005)

    def _process_by_clock(self, execution: StreamingQuery) -> None:
        """Wait until the records of now and the timers of now are processed. Raises StreamingQueryException.

        Such a query runs micro-batches without records, too, so that Spark's `processAllAvailable` does not return. The
        second micro-batch that ends from now on was planned from now on.
        """
        last, deadline_s = _last_batch(execution) + 2, time.monotonic() + CLOCK_S
        while _last_batch(execution) < last or self.status(units.now_ms()).lag:
            if time.monotonic() >= deadline_s:
                raise StreamsError(f"Query {self.query.name} has not processed its records in {CLOCK_S:g} s")
            if not execution.isActive:
                execution.processAllAvailable()  # raises the exception of the query
                return
            time.sleep(0.02)

    def _count_restart(self, error: Exception) -> float:
        """Return how many seconds to wait before a restart. Raises PipelineFailed if none would help."""
        failure = classify(text_of(error))
        if self.progress.batches(self.query.name) > self.batches_at_start:
            self.restarts = Restarts()
        if not failure.is_retriable or self.restarts.are_over:
            raise self.failed(failure) from error
        delay_s = self.restarts.delay_s
        logger.warning("Restarting query %s in %g s: %s", self.query.name, delay_s, failure.reason)
        now_ms = units.now_ms()
        next_start_ms = now_ms + round(1000 * delay_s)
        self.phase = "restarting"
        self.problem = Problem(now_ms, failure.kind, failure.reason, self.restarts.count, next_start_ms)
        self.restarts = self.restarts.one_more()
        return delay_s

    def failed(self, failure: Failure) -> PipelineFailed:
        """Note the failure, and return the exception for it."""
        self.phase = "failed"
        self.problem = Problem(units.now_ms(), failure.kind, failure.reason, self.restarts.count)
        restarts = f" (after {self.restarts.count} restarts)" if self.restarts.count else ""
        return PipelineFailed(f"Pipeline {self.plan.pipeline.name!r} failed{restarts}: {failure.reason}")


def _stop_after_batch(query: StreamingQuery, deadline_s: float) -> None:
    batch = _last_batch(query)
    while query.isActive and time.monotonic() < deadline_s:
        if not _has_batch(query) or _last_batch(query) != batch:
            break
        time.sleep(0.01)
    query.stop()


def _has_batch(query: StreamingQuery) -> bool:
    """Whether a micro-batch with records runs."""
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _last_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else last.batchId
