"""One life of a task that is a Spark query: start, follow, pause, stop. Runs in the task's thread.

A pause stops the query between two micro-batches, and going on starts it from its checkpoint. An error of the query
ends the life; the worker starts the next one if the error passes.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from ottla.connect.api import Kind
from ottla.connect.errors import ConnectError
from ottla.connect.spark.failures import translated
from ottla.connect.spark.mirror import Mirror
from ottla.connect.spark.passes import Passes
from ottla.connect.spark.progress import end_offset, facts_of, wait_of
from ottla.connect.spark.queries import QueryFactory
from ottla.connect.spark.sessions import session_of
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.worker.environment import TaskEnvironment
from ottla.connect.worker.steps import Step
from ottla.spark.internals.errors import JAVA_ERRORS, SPARK_ERRORS

_TICK_S: Final = 0.1
_PAUSE_S: Final = 0.5


class SparkLife:
    """A Spark connector from its start to its end or its first error."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment = environment
        self._control = environment.control
        self._settings = SparkSettings.read(environment.connector, environment.worker.given)
        self._mirror = Mirror(environment)
        self._last_batch = -1
        self._report: dict[str, Any] = {}
        self._rows = 0

    def run(self) -> None:
        """Run until the task should stop. Raises the error that ends this life."""
        environment, control, settings = self._environment, self._control, self._settings
        with ExitStack() as stack:
            stack.callback(self._mirror.close)
            try:
                control.waits_for("The task starts Spark.")
                session = session_of(settings.master, settings.conf)
                queries = QueryFactory(environment, session, settings)
                is_source = environment.connector_class.kind is Kind.SOURCE
                if is_source and settings.is_batch:
                    work: Any = Passes(environment, session, settings, self._mirror).run
                else:
                    if queries.is_mirrored:
                        self._mirror.check(has_checkpoint=queries.has_checkpoint, checkpoint=settings.checkpoint)
                    work = lambda: self._follow(queries)  # noqa: E731
                for topic in (settings.topic,) if is_source else settings.topics:
                    if topic:
                        environment.used_topic(topic)
                control.waits_for("")
                environment.reached(Step.STARTED, environment.task)
                while not control.stopping:
                    is_paused = control.paused
                    environment.shows(is_paused)
                    if is_paused:
                        control.wait_while_paused(_PAUSE_S)
                    else:
                        work()
            except SPARK_ERRORS as error:
                raise translated(error) from error
            except JAVA_ERRORS as error:
                raise ConnectError(f"Spark's Java process has ended: restart the worker ({error})") from error

    def _follow(self, queries: QueryFactory) -> None:
        """Start the query, and follow it until the task should pause or stop, or the query ends."""
        control = self._control
        query = queries.start()
        self._last_batch, self._report = -1, {}
        try:
            while query.isActive and not (control.stopping or control.paused):
                self._note(query, is_mirrored=queries.is_mirrored)
                control.wait(_TICK_S)
        finally:
            _stop_after_batch(query, self._environment.worker.shutdown_timeout_ms * 0.8 / 1000)
        error = query.exception()
        if error is not None:
            raise error
        self._note(query, is_mirrored=queries.is_mirrored)
        queries.commit(self._report)
        while not (control.stopping or control.paused):
            control.waits_for("The query has processed all records that there were; a restart looks for more.")
            control.wait(_TICK_S)

    def _note(self, query: StreamingQuery, *, is_mirrored: bool) -> None:
        """Take over what the query has done since the last call. Raises ClientError."""
        progress = query.lastProgress
        if progress is None:
            self._control.waits_for(f"The query starts: {query.status['message']}.")
            return
        report = json.loads(progress.json)
        batch = int(report["batchId"])
        is_done = "addBatch" in report.get("durationMs", {})
        if batch > self._last_batch and is_done:
            self._last_batch, self._report = batch, report
            self._rows += int(report.get("numInputRows", 0))
            self._control.succeeded()
            self._control.report_facts({**facts_of(report), "records": self._rows})
            if is_mirrored:
                self._mirror.write({"batch": batch, "offset": end_offset(report)})
            self._environment.reached(Step.AFTER_COMMIT, self._environment.task)
        self._control.waits_for(wait_of(query.status))


def _stop_after_batch(query: StreamingQuery, timeout_s: float) -> None:
    """Stop the query between two micro-batches, or after the timeout in one, which is then repeated."""
    deadline_s = time.monotonic() + timeout_s
    batch = _last_batch(query)
    while query.isActive and time.monotonic() < deadline_s:
        status = query.status
        if not (status["isTriggerActive"] and status["isDataAvailable"]) or _last_batch(query) != batch:
            break
        time.sleep(0.01)
    query.stop()


def _last_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last.batchId)
