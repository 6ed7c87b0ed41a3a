"""Finds a task of the running micro-batch that takes much longer than the other ones, and samples its keys.

Spark's own store of stages and tasks is asked while a micro-batch runs for long. The sample (`key_samples`) is made in
a thread, at most once a minute, and only after such a task was found.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.clients.errors import ClientError
from ottla.streams.declarations import Pipeline
from ottla.streams.errors import StreamsError
from ottla.streams.failures import classify
from ottla.streams.key_samples import sample_keys
from ottla.streams.outputs import Query
from ottla.streams.settings import Settings
from ottla.streams.status import SlowTask, Status

logger = logging.getLogger("ottla.streams")

SLOW_MS: Final = 5_000
"""A task that has run for less is not slow."""
SLOW_FACTOR: Final = 2
"""A slow task takes at least so many times as long as half of the other ones."""
FEW: Final = 4
"""Of so many tasks of a stage, at most one still runs, if it is slow."""
INTERVAL_MS: Final = 5_000
"""How often Spark is asked about the tasks."""
SAMPLE_INTERVAL_MS: Final = 60_000
SAMPLE_S: Final = 30.0
"""A sample is cancelled after so long."""
END_S: Final = 10.0
"""How long a stop waits for the end of a cancelled sample."""


class SlowTasks:
    """The slow task of a query. Call `watch` regularly from one thread, and `close` at the end."""

    def __init__(self, query: Query, pipeline: Pipeline, settings: Settings) -> None:
        self._query = query
        self._pipeline = pipeline
        self._settings = settings
        self._group = f"{query.name} sample of keys"
        self._ask_at_ms = 0
        self._sample_at_ms = 0
        self._thread: threading.Thread | None = None
        self._deadline_s = 0.0
        self._sampled: SlowTask | None = None
        """The last sample; written by the thread."""
        self._slow: SlowTask | None = None

    @property
    def _spark(self) -> SparkSession:
        return self._query.outputs[0].rows.sparkSession

    @property
    def slow(self) -> SlowTask | None:
        """The last slow task, with its keys as soon as they are known."""
        slow, sampled = self._slow, self._sampled
        if slow is None or sampled is None or slow.task != sampled.task or slow.tasks != sampled.tasks:
            return slow
        return replace(slow, keys=sampled.keys, unknown=sampled.unknown)

    def watch(self, run_id: str, status: Status, now_ms: int) -> None:
        """Look for a slow task in the running micro-batch of this run of the query. Takes some milliseconds."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        elif self._thread is not None and time.monotonic() >= self._deadline_s:
            self._cancel()
        if status.busy_since_ms is None or now_ms - status.busy_since_ms < SLOW_MS or now_ms < self._ask_at_ms:
            return
        self._ask_at_ms = now_ms + INTERVAL_MS
        found = find_slow_task(self._spark, run_id, now_ms)
        if found is None:
            return
        self._slow = found
        if self._thread is None and now_ms >= self._sample_at_ms and not found.reads_inputs and not found.unknown:
            self._sample_at_ms = now_ms + SAMPLE_INTERVAL_MS
            self._deadline_s = time.monotonic() + SAMPLE_S
            self._thread = InheritableThread(target=self._sample, args=(status, found), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Cancel a sample."""
        if self._thread is not None:
            self._cancel()
            self._thread.join(END_S)
            self._thread = None

    def _cancel(self) -> None:
        with suppress(Py4JError, OSError):  # Java has ended, and the sample with it
            self._spark.sparkContext.cancelJobGroup(self._group)

    def _sample(self, status: Status, slow: SlowTask) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group)
            self._sampled = sample_keys(self._query, self._pipeline, self._settings, status, slow)
        except (PySparkException, Py4JError, OSError, ClientError, StreamsError) as error:
            reason = classify(str(error)).reason
            logger.warning("Keys of a slow task of query %s not sampled: %s", self._query.name, reason)
            self._sampled = replace(slow, unknown=f"the sample failed: {reason}")


def find_slow_task(spark: SparkSession, run_id: str, now_ms: int) -> SlowTask | None:
    """Return the task for which the micro-batch of a run of a query waits, if the other ones took less than half."""
    tracker = spark.sparkContext.statusTracker()
    store: Any = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001 - Spark has no other access to tasks
    active = set(tracker.getActiveStageIds())
    try:
        for job in tracker.getActiveJobsIds():
            data = store.job(job)
            if not data.jobGroup().isDefined() or data.jobGroup().get() != run_id:
                continue
            stages = sorted(data.stageIds().apply(index) for index in range(data.stageIds().size()))
            for number in active.intersection(stages):
                found = _slow_task(spark, store.lastStageAttempt(number), now_ms)
                if found is not None:
                    return _with_kind(found, store, stages)
    except Py4JError as error:  # Spark has removed the job or the stage in the meantime
        logger.debug("Tasks of run %s not read: %s", run_id, error)
    return None


def _slow_task(spark: SparkSession, stage: Any, now_ms: int) -> SlowTask | None:
    tasks, running, done = stage.numTasks(), stage.numActiveTasks(), stage.numCompleteTasks()
    # While tasks wait for a core, the running ones are not the last ones.
    if not done or not 1 <= running <= max(1, tasks // FEW) or running + done < tasks:
        return None
    context: Any = spark.sparkContext
    jvm, store = context._jvm, context._jsc.sc().statusStore()  # noqa: SLF001
    api = jvm.org.apache.spark.status.api.v1
    statuses = jvm.java.util.ArrayList()
    statuses.add(api.TaskStatus.RUNNING)
    place = (stage.stageId(), stage.attemptId())
    first = store.taskList(*place, 0, 1, api.TaskSorting.DECREASING_RUNTIME, statuses)
    half = context._gateway.new_array(jvm.double, 1)  # noqa: SLF001
    half[0] = 0.5
    summary = store.taskSummary(*place, half)
    if not first.size() or not summary.isDefined():
        return None
    task = first.apply(0)
    running_ms = now_ms - task.launchTime().getTime()
    median_ms = round(summary.get().duration().apply(0))
    if running_ms < max(SLOW_MS, SLOW_FACTOR * median_ms):
        return None
    return SlowTask(now_ms, stage.stageId(), task.partitionId(), tasks, running_ms, median_ms, task.host())


def _with_kind(slow: SlowTask, store: Any, stages: list[int]) -> SlowTask:
    """Add whether the stage reads topics, or the rows of an operator. `stages` are those of the job, sorted."""
    shuffled = {number for number in stages if store.lastStageAttempt(number).shuffleReadRecords()}
    # The last stage of several reads what the other ones have written, also if Spark has not counted its rows yet.
    if len(stages) > 1:
        shuffled.add(stages[-1])
    if slow.stage not in shuffled:
        return replace(slow, reads_inputs=True)
    if len(shuffled) > 1:
        return replace(slow, unknown="the rows are divided by several keys, one after another")
    return slow
