"""Spark's reports about the micro-batches of a session: offsets, invalid and late records, state."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from ottla.common import units
from ottla.spark.internals.sessions import report_batches
from ottla.streams.batch_reports import after_batch
from ottla.streams.status import Status

logger = logging.getLogger("ottla.streams")


class Progress:
    """The statuses of the queries of a session, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: dict[str, Status] = {}
        self._remove: Callable[[], None] = lambda: None

    def listen(self, session: SparkSession) -> None:
        """Let Spark report to this object, in a thread of its own."""
        self._remove = report_batches(session, lambda report: self.take(json.loads(report)))

    def end(self) -> None:
        """Let Spark report no more."""
        self._remove()

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
