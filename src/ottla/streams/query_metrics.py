"""Serves the metrics of the streaming queries that a program starts itself, without a pipeline.

A Spark listener receives the reports; pipelines have the same statuses, samples and endpoint. The start of
a query and its micro-batches do not wait for a scrape.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.common import units
from ottla.spark.internals.sessions import report_batches
from ottla.streams.batch_reports import after_batch
from ottla.streams.metrics_address import metrics_address
from ottla.streams.metrics_server import MetricsServer
from ottla.streams.status import Receiver, Run, Status

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyspark.sql import SparkSession


class ReportedQueries:
    """The statuses of the queries of a session, from Spark's events. Any thread may call it."""

    def __init__(self, application: str, receiver: Receiver) -> None:
        self._application = application
        self._receiver = receiver
        self._lock = threading.Lock()
        self._running: dict[str, Status] = {}

    def begun(self, query_id: str, run_id: str, name: str | None) -> None:
        """A query starts. Its samples have its name, or its id, which its checkpoint keeps."""
        run = Run(self._application, name or query_id, run_id, started_ms=units.now_ms(), notes_batches=False)
        self._put(run_id, Status(run, at_ms=run.started_ms))

    def take(self, report: str) -> None:
        """A query has finished a micro-batch; it may have started before this object."""
        found: dict[str, Any] = json.loads(report)
        run_id = found["runId"]
        with self._lock:
            known = run_id in self._running
        if not known:
            self.begun(found["id"], run_id, found.get("name"))
        with self._lock:
            before = self._running[run_id]
        self._put(run_id, after_batch(before, found, units.now_ms()))

    def ended(self, run_id: str, is_failed: bool) -> None:
        """A query has ended. Its samples remain, with its last figures."""
        with self._lock:
            status = self._running.pop(run_id, None)
        if status is not None:
            self._receiver.offer(replace(status, phase="failed" if is_failed else "stopped", at_ms=units.now_ms()))

    def _put(self, run_id: str, status: Status) -> None:
        with self._lock:
            self._running[run_id] = status
        self._receiver.offer(status)


class QueryMetrics:
    """The endpoint of `serve_metrics`. As a context manager, it ends with the block."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._server = MetricsServer(metrics_address("serve_metrics", address))
        queries = ReportedQueries(spark.sparkContext.appName or "", self._server)
        self._end = report_batches(spark, queries.take, queries.begun, queries.ended)

    @property
    def address(self) -> tuple[str, int] | None:
        """The bound address; None before."""
        return self._server.address

    def close(self) -> None:
        """Receive no more reports, and end the endpoint. Blocks for at most 5 seconds."""
        self._end()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve_metrics(spark: SparkSession, address: str) -> QueryMetrics:
    """Serve the metrics of the streaming queries of a session to Prometheus, at `address`, as host:port.

    Pipelines have the same samples (docs/metrics.md): `pipeline` is the name of the application, and `query` the
    name of the query, or its id if it has none. Queries of topics have their lag, with Spark's own connector, too.
    Returns at once: while the address is in use, a thread retries. Call it before the queries start; queries that run
    already have samples after their next micro-batch.
    An address that other machines can reach needs a token in $OTTLA_METRICS_TOKEN, or certificates of scrapes:
    docs/metrics.md has the variables. Raises StreamsError if it would be open, or if a file cannot be used.
    """
    return QueryMetrics(spark, address)
