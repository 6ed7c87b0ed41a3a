"""What the queries of a session report after each micro-batch: the last batch, and the number of invalid records."""

from __future__ import annotations

import logging
import threading

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
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

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's
        """Called before the first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's
        """Called after each micro-batch."""
        report = event.progress
        name = report.name or ""
        with self._lock:
            self._batches[name] = self._batches.get(name, 0) + 1
            self._last[name] = report.batchId
            for metric, row in report.observedMetrics.items():
                prefix, _, parameter = metric.partition(".")
                number = row[INVALID] if prefix == INVALID else 0
                if number:
                    self._invalid[name, parameter] = self._invalid.get((name, parameter), 0) + number
                    logger.warning(
                        "Invalid records in query %s: input=%s, batch=%d, number=%d, total=%d",
                        name, parameter, report.batchId, number, self._invalid[name, parameter],
                    )  # fmt: skip

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's
        """Called while there are no records."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's
        """Called at the end of a query."""
