"""Runs pipelines: starts their queries, restarts queries that may succeed, and ends after the running micro-batches.

Everything runs in the driver: one Spark session for each pipeline, since each has its number of shuffle partitions.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import SparkSession

from ottla.common import units
from ottla.spark import java_start
from ottla.spark.internals import java
from ottla.spark.internals.errors import JAVA_ERRORS
from ottla.spark.internals.names import CASE_CLASSES, TRIGGERS
from ottla.spark.internals.sessions import ensure_active
from ottla.spark.session import session as spark_session
from ottla.spark.session import settings as spark_settings
from ottla.streams import checkpoints
from ottla.streams.checkpoint_files import StoredProgram, stored_program
from ottla.streams.declarations import Pipeline, Table
from ottla.streams.errors import PipelineFailed
from ottla.streams.event_time import milliseconds
from ottla.streams.failures import Failure
from ottla.streams.input_topics import committed_offsets, count_partitions, log_offsets
from ottla.streams.loading import choose, pipelines_of
from ottla.streams.metrics_address import metrics_address
from ottla.streams.metrics_server import MetricsServer
from ottla.streams.operators import changes_case
from ottla.streams.outputs import Query
from ottla.streams.pacing import Pace
from ottla.streams.planning import Plan, check, make_plan
from ottla.streams.progress import Progress
from ottla.streams.publishing import Publisher, commit_offsets
from ottla.streams.registries import Given
from ottla.streams.registries import registry as registry_of
from ottla.streams.running_query import RunningQuery
from ottla.streams.settings import Settings, default_bootstrap
from ottla.streams.starting import Start
from ottla.streams.status import INTERVAL_MS, Receiver, Run, Status, at_start

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("ottla.streams")

Starts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition."""

WATCH_S: Final = 0.2
"""How often the queries are watched."""
WATCH_ONCE_S: Final = 0.05
"""The same for queries that end at the current end of their topics."""
BATCH_END_S: Final = 60.0
"""How long a stop waits for the end of a micro-batch."""
STOP_TIMEOUT: Final = "30s"
"""How long the stop of a query waits for its end, after `BATCH_END_S`."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_JAVA_SIGNALS: Final = ("TERM", "INT", "HUP")
"""Of them, Java ignores those that it ignored at its start, such as INT if pyspark started it."""


def run(
    *pipelines: Pipeline,
    bootstrap: str | None = None,
    checkpoints: str | None = None,
    master: str | None = None,
    once: bool = False,
    client: Mapping[str, str] | None = None,
    latency: str | None = None,
    registry: Given | None = None,
    metrics: str | None = None,
) -> tuple[Status, ...]:
    """Run pipelines until SIGTERM, SIGINT or SIGHUP, or with `once` up to the current ends of their topics.

    Without pipelines, runs all in the program's main module. `bootstrap` is by default $OTTLA_BOOTSTRAP or
    127.0.0.1:9092, `checkpoints` $OTTLA_CHECKPOINTS or the directory `checkpoints`. `client` are settings of Kafka's
    clients, `registry` the schema registry of pipelines without one: a URL, or settings by name. `latency` replaces the
    pipelines' own. `metrics` is an address, as host:port, where the driver serves metrics of the queries to Prometheus.
    Uses the running Spark session, or starts one with `master`.
    Blocks. Raises StreamsError for a wrong program, and PipelineFailed if a pipeline fails and a restart would not
    help; the others are stopped. Returns the statuses of the queries; meanwhile, these are in the topic
    `__ottla_streams`.
    """
    chosen = choose(pipelines or pipelines_of(sys.modules["__main__"]), (), "The program")
    settings = Settings(
        {"bootstrap.servers": bootstrap or default_bootstrap(), **(client or {})},
        checkpoints or os.environ.get("OTTLA_CHECKPOINTS") or "checkpoints",
        once,
        latency_ms=None if latency is None else milliseconds("latency", latency),
        registry=registry_of("run", registry),
        metrics=None if metrics is None else metrics_address("metrics", metrics),
    )
    return run_in(spark_session(" ".join(each.name for each in chosen), master), chosen, settings)


class Stop(threading.Event):
    """Set by a signal, which it names; `number` is None for a signal that Java received.

    `spark-submit` is Java, and systemd signals all processes of a service. By default Java ends, and its shutdown hooks
    stop all queries in their micro-batches. A task that fails meanwhile is never reported, so a hook could not wait for
    the end of a micro-batch either.
    """

    number: signal.Signals | None = None

    def receive(self, number: int, _: FrameType | None) -> None:
        """Take a signal to this process."""
        if not self.is_set():
            self.number = signal.Signals(number)
            self._end(f"signal={self.number.name}")

    def receive_from_java(self, name: str) -> None:
        """Take a signal to Java."""
        if not self.is_set():
            self._end(f"signal to Java=SIG{name}")

    def _end(self, reason: str) -> None:
        logger.info("Stopping after the running batches: %s", reason)
        self.set()


def run_in(
    spark: SparkSession, pipelines: Sequence[Pipeline], settings: Settings, stop: Stop | None = None
) -> tuple[Status, ...]:
    """Run pipelines in a session of `ottla.spark.session()`, as `run` does."""
    stop = Stop() if stop is None else stop
    publisher = Publisher(settings.client)
    metrics = () if settings.metrics is None else (MetricsServer(settings.metrics),)
    runner = Runner(spark, pipelines, settings, publisher, *metrics)
    # Not before the session exists: its start sets a handler of SIGINT.
    with _signals(stop), java.handled_signals(_JAVA_SIGNALS, stop.receive_from_java):
        try:
            runner.start(stop)
            runner.watch(stop)
        except JAVA_ERRORS as error:
            if java.is_running():
                raise
            if not stop.is_set():
                raise runner.fail("Spark's Java process has ended") from error
        finally:
            with java.quiet() if stop.is_set() else nullcontext():
                runner.stop()
            publisher.close()
            for each in metrics:
                each.close()
    return runner.statuses()


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Set `stop` on SIGTERM, SIGINT and SIGHUP. Spark's own handler of SIGINT would cancel the running batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before: dict[signal.Signals, signal._HANDLER] = {}
    for number in _SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` sets it
            before[number] = signal.signal(number, stop.receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Planned:
    """A pipeline that is checked, and not started yet."""

    plan: Plan
    progress: Progress
    starts: Starts
    new: StoredProgram | None
    """The description for a new checkpoint; None if the checkpoint exists."""


class Runner:
    """The queries of some pipelines in one Spark session. Call `start`, `watch`, then always `stop`."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Sequence[Pipeline],
        settings: Settings,
        *receivers: Receiver,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._settings = settings
        self._receivers = receivers
        self._offer_at_s = 0.0
        self._identity = Run("", "", secrets.token_hex(4), socket.gethostname(), os.getpid(), units.now_ms())
        self._queries: list[RunningQuery] = []
        self._ended_queries: list[RunningQuery] = []
        self._listeners: list[Progress] = []

    def start(self, stop: threading.Event | None = None) -> None:
        """Check all pipelines, then start their queries. Restarts as `watch` does, unless `stop` is set.

        Raises StreamsError, and exceptions of clients and Spark.
        """
        ensure_active(self._spark)
        stop = stop or threading.Event()
        start = Start([self._status_before(each) for each in self._pipelines], self._receivers)
        queries = start.repeat(self._checked, self._end_reports, stop) or []
        if any(changes_case(output.rows) for each in queries for output in each.query.outputs):
            java_start.initialize(CASE_CLASSES)
        for query in queries if not stop.is_set() else ():
            query.problem = start.problem
            self._queries.append(query)
            query.start(self._spark, self._settings)

    def _status_before(self, pipeline: Pipeline) -> Status:
        """Return the status of a pipeline whose queries are not known yet: the first one has its name."""
        return Status(replace(self._identity, query=pipeline.name, **_of_program(pipeline, self._settings)))

    def _checked(self) -> list[RunningQuery]:
        """Check all pipelines, and return their queries. Raises StreamsError, and exceptions of clients."""
        partitions = count_partitions(self._settings.client, self._pipelines)
        plans = [self._plan(each, partitions) for each in self._pipelines]
        check(*(each.plan for each in plans))
        found = []
        for planned in plans:
            plan, offsets = planned.plan, self._offsets(planned, partitions)
            for query in plan.queries:
                if planned.new is None:
                    offsets = committed_offsets(self._settings.client, query.name, _topics(plan.pipeline, partitions))
                planned.progress.begin(at_start(run_of(plan, query, self._settings, self._identity), offsets))
                found.append(RunningQuery(plan, query, planned.progress))
        for planned in plans:
            if planned.new is not None:
                checkpoints.store(self._spark, self._settings.checkpoint(planned.plan.pipeline), planned.new)
        return found

    def _offsets(self, planned: _Planned, partitions: Mapping[str, int]) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """Return the start and end of each partition for a new checkpoint. Raises exceptions of clients."""
        if planned.new is None:
            return {}
        pipeline = planned.plan.pipeline
        offsets = log_offsets(self._settings.client, _topics(pipeline, partitions), planned.starts)
        for each in pipeline.streams.values():
            if each.start == "latest" and each.topic not in planned.starts:
                offsets[each.topic] = {number: (end, end) for number, (_, end) in offsets[each.topic].items()}
        return offsets

    def watch(self, stop: threading.Event) -> None:
        """Wait until all queries have ended or `stop` is set, and restart failed ones. Raises PipelineFailed."""
        while not stop.is_set() and self._queries:
            now_s = time.monotonic()
            for each in list(self._queries):
                if each.execution is None:
                    # Spark waits 10 s for the Python process of each query, which is too short if many start at once.
                    if now_s >= each.start_at_s and not any(other.is_starting for other in self._queries):
                        each.start(self._spark, self._settings)
                elif not each.execution.isActive and each.end(now_s):
                    self._queries.remove(each)
                    self._ended_queries.append(each)
            self._offer(now_s)
            stop.wait(WATCH_ONCE_S if self._settings.once else WATCH_S)

    def stop(self) -> None:
        """Stop all queries, each after its running micro-batch. Blocks for at most a minute."""
        deadline_s = time.monotonic() + BATCH_END_S
        for each in self._queries:
            try:
                each.stop(deadline_s)
            except JAVA_ERRORS as error:  # Java has ended, or does so
                logger.warning("Stopped query %s in a micro-batch: %s", each.query.name, error)
        self._offer_statuses()
        commit_offsets(self._settings.client, [each.status(units.now_ms()) for each in self._queries])
        self._ended_queries += self._queries
        self._queries.clear()
        self._end_reports()

    def _end_reports(self) -> None:
        for progress in self._listeners:
            with suppress(*JAVA_ERRORS):  # Java has ended
                progress.end()
        self._listeners.clear()

    def fail(self, reason: str) -> PipelineFailed:
        """Note that all queries have ended, and return the exception for it."""
        for each in self._queries:
            each.failed(Failure("retriable", reason))
            each.execution = None
        return PipelineFailed(f"{reason}: a new run continues after the last finished micro-batches")

    def statuses(self) -> tuple[Status, ...]:
        """Return the status of each query so far."""
        now_ms = units.now_ms()
        return tuple(each.status(now_ms) for each in (*self._ended_queries, *self._queries))

    def _offer(self, now_s: float) -> None:
        """Offer the statuses to all receivers, once a second."""
        if not self._receivers or now_s < self._offer_at_s:
            return
        self._offer_at_s = now_s + INTERVAL_MS / 1000
        now_ms = units.now_ms()
        for each in self._queries:
            each.note_busy(now_ms)
        self._offer_statuses()

    def _offer_statuses(self) -> None:
        for status in self.statuses():
            for each in self._receivers:
                each.offer(status)

    def process_available(self) -> None:
        """Wait until all records of now are processed and reported. Restarts as `watch` does.

        Raises PipelineFailed.
        """
        for each in self._queries:
            while (delay_s := each.process_available()) is not None:
                time.sleep(delay_s)
                each.start(self._spark, self._settings)

    def invalid(self) -> dict[str, int]:
        """How many records were invalid, by parameter."""
        return {
            name: number for each in self._queries for name, number in each.progress.invalid(each.query.name).items()
        }

    def late(self) -> int:
        """How many rows were dropped because they were later than the watermark."""
        return sum(each.progress.late(each.query.name) for each in self._queries)

    def _plan(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> _Planned:
        """Return the plan of a pipeline. Raises StreamsError."""
        directory = self._settings.checkpoint(pipeline)
        before = checkpoints.load(self._spark, directory)
        cores = self._spark.sparkContext.defaultParallelism
        streamed = sum(partitions[each.topic] for each in pipeline.streams.values())
        shuffle_partitions = before.shuffle_partitions if before is not None else max(1, min(streamed, cores))
        session = _session(self._spark, shuffle_partitions, self._settings.pace(pipeline))
        starts = checkpoints.starting_offsets(self._spark, directory, partitions)
        plan = make_plan(session, pipeline, replace(self._settings, starts=starts))
        now = stored_program(plan.description, shuffle_partitions)
        if before is not None:
            checkpoints.check_unchanged(before, now, directory)
        progress = Progress()
        progress.listen(session)
        self._listeners.append(progress)
        return _Planned(plan, progress, starts, now if before is None else None)


def _topics(pipeline: Pipeline, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the number of partitions of each stream, by topic."""
    return {each.topic: partitions[each.topic] for each in pipeline.streams.values()}


def run_of(plan: Plan, query: Query, settings: Settings, identity: Run) -> Run:
    """Return what the status of a query says about its program."""
    pipeline = plan.pipeline
    described = next(each for each in plan.description.queries if each.name == query.name)
    return replace(
        identity,
        query=query.name,
        mode=query.mode,
        outputs=described.topics,
        operators=tuple(map(str, query.operators)),
        **_of_program(pipeline, settings),
    )


def _of_program(pipeline: Pipeline, settings: Settings) -> dict[str, Any]:
    """Return the fields of Run that are known before the function of a pipeline is called."""
    return {
        "pipeline": pipeline.name,
        "checkpoint": _absolute(settings.checkpoint(pipeline)),
        "once": settings.once,
        "exactly_once": pipeline.exactly_once,
        "streams": {name: each.topic for name, each in pipeline.streams.items()},
        "tables": sorted(each.topic for each in pipeline.inputs.values() if isinstance(each, Table)),
        "has_event_time": any(each.time is not None for each in pipeline.streams.values()),
    }


def _absolute(directory: str) -> str:
    return directory if ":" in directory.partition("/")[0] else str(Path(directory).resolve())


def _session(spark: SparkSession, shuffle_partitions: int, pace: Pace) -> SparkSession:
    """Return a session with the settings of `spark`, and these for the queries of a pipeline."""
    session = spark.newSession()
    for name in spark_settings():
        if name.startswith("spark.sql."):
            session.conf.set(name, str(spark.conf.get(name)))
    session.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    session.conf.set("spark.sql.streaming.pollingDelay", f"{pace.poll_ms}ms")
    # By default there is no limit: the end of a query waits for its Python processes, which Java cannot interrupt.
    session.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    # Spark changes it for each query, with a warning.
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # It warns about each micro-batch that takes longer than the interval. The next one follows at once, as it should.
    java.set_log_level("ERROR", TRIGGERS)
    return session
