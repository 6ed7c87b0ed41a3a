"""The tasks of a running stage, from Spark's store of jobs, stages and tasks (`AppStatusStore`)."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


class RunningTask(NamedTuple):
    """A running task, and the median duration of the tasks of its stage that have ended."""

    partition: int
    host: str
    launched_ms: int
    median_ms: int


def longest_task(spark: SparkSession, stage: int, attempt: int) -> RunningTask | None:
    """Return the running task of a stage that was launched first; None if no task runs or no task has ended.

    Uses `SparkContext._jsc`, `_jvm` and `_gateway`, and Java's `AppStatusStore` (pyspark 4.2 to 4.3).
    """
    context: Any = spark.sparkContext
    try:
        jvm, store = context._jvm, context._jsc.sc().statusStore()  # noqa: SLF001
        api = jvm.org.apache.spark.status.api.v1
        statuses = jvm.java.util.ArrayList()
        statuses.add(api.TaskStatus.RUNNING)
        first = store.taskList(stage, attempt, 0, 1, api.TaskSorting.DECREASING_RUNTIME, statuses)
        half = context._gateway.new_array(jvm.double, 1)  # noqa: SLF001
        half[0] = 0.5
        summary = store.taskSummary(stage, attempt, half)
        if not first.size() or not summary.isDefined():
            return None
        task = first.apply(0)
        median_ms = round(summary.get().duration().apply(0))
        return RunningTask(task.partitionId(), task.host(), task.launchTime().getTime(), median_ms)
    except Py4JError as error:  # Spark has removed the stage in the meantime
        logger.debug("Tasks of stage %d not read: %s", stage, error)
        return None


def shuffle_records(spark: SparkSession, stage: int) -> int:
    """Return how many rows the tasks of a stage have read from other stages; 0 for an unknown stage.

    Uses `SparkContext._jsc` and Java's `AppStatusStore` (pyspark 4.2 to 4.3).
    """
    context: Any = spark.sparkContext
    try:
        return int(context._jsc.sc().statusStore().lastStageAttempt(stage).shuffleReadRecords())  # noqa: SLF001
    except Py4JError as error:  # Spark has removed the stage in the meantime
        logger.debug("Stage %d not read: %s", stage, error)
        return 0
