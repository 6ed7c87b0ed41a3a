"""What the queries of a session report after each micro-batch: the last batch, and the invalid and late records."""

from __future__ import annotations

import logging
import threading

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from ottla.streams.inputs import INVALID

logger = logging.getLogger("ottla.streams")


class Progress(StreamingQueryListener):
    """Collects reports by the name of the query. Spark calls it in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._invalid: dict[tuple[str, str], int] = {}
        self._late: dict[str, int] = {}

    def batches(self, query: str) -> int:
        """How many micro-batches a query has finished, in all its runs in this process."""
        with self._lock:
            return self._batches.get(query, 0)

    def last_batch(self, query: str) -> int:
        """The number of the last micro-batch that a query has reported; -1 before the first report."""
        with self._lock:
            return self._last.get(query, -1)

    def invalid(self, query: str) -> dict[str, int]:
        """How many invalid records a query has skipped or written to a topic for them, by parameter."""
        with self._lock:
            return {parameter: number for (name, parameter), number in self._invalid.items() if name == query}

    def late(self, query: str) -> int:
        """How many rows operators with state have dropped, because they were later than the watermark.

        Aggregates count the rows of a micro-batch after they have combined those with equal keys and windows.
        """
        with self._lock:
            return self._late.get(query, 0)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Called before the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Called after each micro-batch."""
        report = event.progress
        name = report.name or ""
        with self._lock:
            self._batches[name] = self._batches.get(name, 0) + 1
            self._last[name] = report.batchId
            self._count_late(name, report)
            for metric, row in report.observedMetrics.items():
                prefix, _, parameter = metric.partition(".")
                number = row[INVALID] if prefix == INVALID else 0
                if number:
                    self._invalid[name, parameter] = self._invalid.get((name, parameter), 0) + number
                    logger.warning(
                        "Invalid records in query %s: input=%s, batch=%d, number=%d, total=%d",
                        name, parameter, report.batchId, number, self._invalid[name, parameter],
                    )  # fmt: skip

    def _count_late(self, name: str, report: StreamingQueryProgress) -> None:
        number = sum(each.numRowsDroppedByWatermark for each in report.stateOperators)
        if number:
            self._late[name] = self._late.get(name, 0) + number
            logger.warning(
                "Late records in query %s: batch=%d, rows=%d, total=%d, watermark=%s",
                name, report.batchId, number, self._late[name], report.eventTime.get("watermark"),
            )  # fmt: skip

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """Called while there are no records."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """Called at the end of a query."""
