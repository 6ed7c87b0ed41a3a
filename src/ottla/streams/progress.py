"""What the queries of a session report after each micro-batch: offsets, invalid and late records, state.

Spark calls a listener in Python with objects of Java, and pyspark copies them field by field: 60 ms for a query with
state. This listener takes the report as JSON, in less than a millisecond.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from ottla.common import units
from ottla.streams.batch_reports import after_batch
from ottla.streams.status import Status

logger = logging.getLogger("ottla.streams")


class Progress:
    """The statuses of the queries of a session, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, Status] = {}
        self._java: Any = None

    def listen(self, session: SparkSession) -> None:
        """Let Spark report to this object, in a thread of its own."""
        context: Any = SparkContext  # its gateway to Java has no public name
        start_callbacks: Callable[[Any], None] = ensure_callback_server_started
        start_callbacks(context._gateway)  # noqa: SLF001
        streaming = context._jvm.org.apache.spark.sql.streaming  # noqa: SLF001
        self._java = streaming.PythonStreamingQueryListenerWrapper(_JavaListener(self))
        session.streams._jsqm.addListener(self._java)  # noqa: SLF001

    def end(self, session: SparkSession) -> None:
        """Let Spark report no more."""
        session.streams._jsqm.removeListener(self._java)  # noqa: SLF001

    def begin(self, status: Status) -> None:
        """Collect the reports of a query from this status on."""
        with self._lock:
            self._statuses[status.run.query] = status

    def status(self, query: str) -> Status:
        """The status of a query after its last report."""
        with self._lock:
            return self._statuses[query]

    def batches(self, query: str) -> int:
        """How many micro-batches a query has finished, in all its runs in this process."""
        return self.status(query).batches

    def last_batch(self, query: str) -> int:
        """The number of the last micro-batch that a query has reported; -1 before the first report."""
        batch = self.status(query).batch
        return -1 if batch is None else batch.number

    def invalid(self, query: str) -> dict[str, int]:
        """How many invalid records a query has skipped or written to a topic for them, by parameter."""
        return {parameter: number for parameter, number in self.status(query).invalid.items() if number}

    def late(self, query: str) -> int:
        """How many rows operators with state have dropped, because they were later than the watermark.

        Aggregates count the rows of a micro-batch after they have combined those with equal keys and windows.
        """
        return self.status(query).late

    def take(self, report: Any) -> None:
        """Add the report about a micro-batch, as JSON."""
        query = report.get("name")
        with self._lock:
            if query not in self._statuses:
                return
            before = self._statuses[query]
            after = self._statuses[query] = after_batch(before, report, units.now_ms())
        if after.late > before.late:
            logger.warning(
                "Late records in query %s: batch=%d, rows=%d, total=%d, watermark=%s",
                query, report["batchId"], after.late - before.late, after.late,
                report.get("eventTime", {}).get("watermark"),
            )  # fmt: skip
        for parameter, total in after.invalid.items():
            if total > before.invalid.get(parameter, 0):
                logger.warning(
                    "Invalid records in query %s: input=%s, batch=%d, number=%d, total=%d",
                    query, parameter, report["batchId"], total - before.invalid.get(parameter, 0), total,
                )  # fmt: skip


class _JavaListener:
    """The interface that Spark calls, by py4j's convention."""

    class Java:
        """The name of the interface."""

        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Called before the first micro-batch."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Called after each micro-batch."""
        self._progress.take(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Called while there are no records."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        """Called at the end of a query."""
