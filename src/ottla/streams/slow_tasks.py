"""Finds a task of the running micro-batch that takes much longer than the others, and samples its keys.

Spark's own store of stages and tasks is asked while a micro-batch runs for long. The sample (`key_samples`) is made in
a thread, at most once a minute, and only after such a task was found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyspark import InheritableThread, SparkStageInfo
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.clients.errors import ClientError
from ottla.spark.internals.errors import JAVA_ERRORS
from ottla.spark.internals.stages import longest_task, shuffle_records
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
"""A slow task takes at least this many times as long as half of the others."""
FEW: Final = 4
"""Of this many tasks of a stage, at most one still runs, if it is slow."""
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
        with suppress(*JAVA_ERRORS):  # Java has ended, and the sample with it
            self._spark.sparkContext.cancelJobGroup(self._group)

    def _sample(self, status: Status, slow: SlowTask) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group)
            self._sampled = sample_keys(self._query, self._pipeline, self._settings, status, slow)
        except (PySparkException, *JAVA_ERRORS, ClientError, StreamsError) as error:
            reason = classify(str(error)).reason
            logger.warning("Keys of a slow task of query %s not sampled: %s", self._query.name, reason)
            self._sampled = replace(slow, unknown=f"the sample failed: {reason}")


def find_slow_task(spark: SparkSession, run_id: str, now_ms: int) -> SlowTask | None:
    """Return the task for which the micro-batch of a run of a query waits, if the others took less than half."""
    tracker = spark.sparkContext.statusTracker()
    active = set(tracker.getActiveStageIds())
    for job in set(tracker.getActiveJobsIds()).intersection(tracker.getJobIdsForGroup(run_id)):
        data = tracker.getJobInfo(job)
        stages = [] if data is None else sorted(data.stageIds)
        for number in active.intersection(stages):
            found = _slow_task(spark, number, tracker.getStageInfo(number), now_ms)
            if found is not None:
                return _with_kind(found, {each: shuffle_records(spark, each) for each in stages})
    return None


def _slow_task(spark: SparkSession, number: int, stage: SparkStageInfo | None, now_ms: int) -> SlowTask | None:
    if stage is None:  # Spark has removed it in the meantime
        return None
    tasks, running, done = stage.numTasks, stage.numActiveTasks, stage.numCompletedTasks
    # While tasks wait for a core, the running ones are not the last ones.
    if not done or not 1 <= running <= max(1, tasks // FEW) or running + done < tasks:
        return None
    task = longest_task(spark, number, stage.currentAttemptId)
    if task is None:
        return None
    running_ms = now_ms - task.launched_ms
    if running_ms < max(SLOW_MS, SLOW_FACTOR * task.median_ms):
        return None
    return SlowTask(now_ms, number, task.partition, tasks, running_ms, task.median_ms, task.host)


def _with_kind(slow: SlowTask, shuffled_records: Mapping[int, int]) -> SlowTask:
    """Add whether the stage reads topics, or the rows of an operator. `shuffled_records` are by stage of the job."""
    stages = sorted(shuffled_records)
    shuffled = {number for number in stages if shuffled_records[number]}
    # The last stage of several reads what the others have written, also if Spark has not counted its rows yet.
    if len(stages) > 1:
        shuffled.add(stages[-1])
    if slow.stage not in shuffled:
        return replace(slow, reads_inputs=True)
    if len(shuffled) > 1:
        return replace(slow, unknown="the rows are divided by several keys, one after another")
    return slow
