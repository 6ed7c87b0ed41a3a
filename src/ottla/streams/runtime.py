"""Runs pipelines: starts their queries, restarts those that may succeed, and ends after the running micro-batches.

Everything runs in the driver: one session of Spark for each pipeline, since each has its number of shuffle partitions.
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
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.clients.admin import Admin
from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import ClientError, UnknownTopicOrPartition
from ottla.common import units
from ottla.spark import java_start
from ottla.spark.session import session as spark_session
from ottla.spark.session import settings as spark_settings
from ottla.streams import checkpoints
from ottla.streams.declarations import Pipeline, Table
from ottla.streams.description import Stored, stored
from ottla.streams.errors import PipelineFailed, StreamsError
from ottla.streams.failures import Failure, Restarts, classify, classify_exception
from ottla.streams.loading import choose, pipelines_of
from ottla.streams.observing import log_offsets
from ottla.streams.operators import changes_case
from ottla.streams.outputs import Query, start_query
from ottla.streams.planning import Plan, check, make_plan
from ottla.streams.progress import Progress
from ottla.streams.publishing import Publisher
from ottla.streams.settings import Settings
from ottla.streams.status import INTERVAL_MS, RUNS, Phase, Problem, Run, Status, at_start

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("ottla.streams")

Starts: TypeAlias = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition."""

WATCH_S: Final = 0.2
WATCH_ONCE_S: Final = 0.05
REPORT_S: Final = 10.0
BATCH_END_S: Final = 60.0
"""How long a stop waits for the end of a micro-batch."""
CLOCK_S: Final = 120.0
"""How long to wait for the records of a query that Spark cannot wait for."""
POLLING_DELAY: Final = "25ms"
"""How often an idle query looks for records. Spark's default, 10 ms, takes several per cent of a core."""
DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def run(
    *pipelines: Pipeline,
    bootstrap: str | None = None,
    checkpoints: str | None = None,
    master: str | None = None,
    once: bool = False,
    client: Mapping[str, str] | None = None,
) -> tuple[Status, ...]:
    """Run pipelines until SIGTERM or SIGINT, or with `once` up to the current ends of their topics.

    Without pipelines, runs those of the program's main module. `bootstrap` is by default $OTTLA_BOOTSTRAP or
    127.0.0.1:9092, `checkpoints` $OTTLA_CHECKPOINTS or the directory `checkpoints`. `client` are settings of Kafka's
    clients. Uses the running session of Spark, or starts one with `master`. Blocks. Raises StreamsError for a wrong
    program, and PipelineFailed if a pipeline fails and a restart would not help; the other ones are stopped. Returns
    what each query has done; meanwhile, its status is in the topic `__ottla_streams`.
    """
    chosen = choose(pipelines or pipelines_of(sys.modules["__main__"]), (), "The program")
    settings = Settings(
        {"bootstrap.servers": bootstrap or os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP, **(client or {})},
        checkpoints or os.environ.get("OTTLA_CHECKPOINTS") or "checkpoints",
        once,
    )
    return run_in(spark_session(" ".join(each.name for each in chosen), master), chosen, settings)


def run_in(spark: SparkSession, pipelines: Sequence[Pipeline], settings: Settings) -> tuple[Status, ...]:
    """Run pipelines in a session of `ottla.spark.session()`, as `run` does."""
    stop = threading.Event()
    publisher = Publisher(settings.client)
    runner = Runner(spark, pipelines, settings, publisher)
    with _signals(stop):  # not before the session exists: its start sets a handler of SIGINT
        try:
            runner.start(stop)
            runner.watch(stop)
        finally:
            runner.stop()
            publisher.close()
    return runner.statuses()


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM and SIGINT. Spark's own handler of SIGINT would cancel the running batch."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: FrameType | None) -> None:
        logger.info("Stopping after the running batches: signal=%s", signal.Signals(number).name)
        stop.set()

    before: dict[signal.Signals, signal._HANDLER] = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Running:
    """A query and its restarts."""

    plan: Plan
    query: Query
    progress: Progress
    running: StreamingQuery | None = None
    restarts: Restarts = field(default_factory=Restarts)
    start_at_s: float = 0.0
    batches: int = 0
    """The finished micro-batches at the last start."""
    phase: Phase = "running"
    problem: Problem | None = None
    busy_since_ms: int | None = None

    def status(self, now_ms: int) -> Status:
        """The status of the query at this time."""
        found = self.progress.status(self.query.name)
        return replace(found, phase=self.phase, at_ms=now_ms, problem=self.problem, busy_since_ms=self.busy_since_ms)


@dataclass(frozen=True)
class _Planned:
    """A pipeline that is checked, and not started yet."""

    plan: Plan
    progress: Progress
    starts: Starts
    new: Stored | None
    """What a new checkpoint says about the program; None for a checkpoint that exists."""


class Runner:
    """The queries of some pipelines in one session of Spark. Call `start`, `watch`, then always `stop`."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: Sequence[Pipeline],
        settings: Settings,
        publisher: Publisher | None = None,
    ) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._settings = settings
        self._publisher = publisher
        self._publish_at_s = 0.0
        self._identity = Run("", "", secrets.token_hex(4), socket.gethostname(), os.getpid(), units.now_ms())
        self._queries: list[_Running] = []
        self._ended_queries: list[_Running] = []
        self._sessions: list[tuple[SparkSession, Progress]] = []

    def start(self, stop: threading.Event | None = None) -> None:
        """Check all pipelines, then start their queries. Restarts as `watch` does, unless `stop` is set.

        Raises StreamsError, and exceptions of clients and Spark.
        """
        _ensure_active(self._spark)
        queries = self._prepare(stop or threading.Event())
        if any(changes_case(output.rows) for each in queries for output in each.query.outputs):
            java_start.initialize(java_start.CASES)
        for query in queries:
            self._queries.append(query)
            self._start(query)

    def _prepare(self, stop: threading.Event) -> list[_Running]:
        """Return the queries of all pipelines; nothing if `stop` is set. Raises as `start` does."""
        restarts = Restarts()
        while True:
            try:
                return self._checked()
            except (StreamsError, ClientError, PySparkException) as error:
                self._end_sessions()
                failure = classify_exception(error)
                if not failure.is_retriable or restarts.are_over:
                    raise
                logger.warning("Starting again in %g s: %s", restarts.delay_s, failure.reason)
            if stop.wait(restarts.delay_s):
                return []
            restarts = restarts.one_more()

    def _checked(self) -> list[_Running]:
        """Check all pipelines, and return their queries. Raises StreamsError, and exceptions of clients."""
        partitions = count_partitions(self._settings.client, self._pipelines)
        plans = [self._plan(each, partitions) for each in self._pipelines]
        check(*(each.plan for each in plans))
        found = []
        for planned in plans:
            plan, offsets = planned.plan, self._offsets(planned, partitions)
            for query in plan.queries:
                planned.progress.begin(at_start(run_of(plan, query, self._settings, self._identity), offsets))
                found.append(_Running(plan, query, planned.progress))
        for planned in plans:
            if planned.new is not None:
                checkpoints.store(self._spark, self._settings.checkpoint(planned.plan.pipeline), planned.new)
        return found

    def _offsets(self, planned: _Planned, partitions: Mapping[str, int]) -> Mapping[str, Mapping[int, tuple[int, int]]]:
        """Return the start and end of each partition for a new checkpoint. Raises exceptions of clients."""
        if planned.new is None:
            return {}
        streams = planned.plan.pipeline.streams.values()
        topics = {each.topic: partitions[each.topic] for each in streams}
        offsets = log_offsets(self._settings.client, topics, planned.starts)
        for each in streams:
            if each.start == "latest" and each.topic not in planned.starts:
                offsets[each.topic] = {number: (end, end) for number, (_, end) in offsets[each.topic].items()}
        return offsets

    def watch(self, stop: threading.Event) -> None:
        """Wait until all queries have ended or `stop` is set, and restart failed ones. Raises PipelineFailed."""
        while not stop.is_set() and self._queries:
            now_s = time.monotonic()
            for each in list(self._queries):
                if each.running is None:
                    # Spark waits 10 s for the Python process of each query, which is too short if many start at once.
                    if now_s >= each.start_at_s and not any(_is_starting(other.running) for other in self._queries):
                        self._start(each)
                elif not each.running.isActive:
                    self._ended(each, now_s)
            self._publish(now_s)
            stop.wait(WATCH_ONCE_S if self._settings.once else WATCH_S)

    def stop(self) -> None:
        """Stop all queries, each after its running micro-batch. Blocks for at most a minute."""
        deadline_s = time.monotonic() + BATCH_END_S
        for each in self._queries:
            if each.running is not None:
                _stop_after_batch(each.running, deadline_s)
            if each.phase in RUNS:
                each.phase = "stopped"
            each.busy_since_ms = None
        self._publish(float("inf"))
        self._ended_queries += self._queries
        self._queries.clear()
        self._end_sessions()

    def _end_sessions(self) -> None:
        for session, progress in self._sessions:
            progress.end(session)
        self._sessions.clear()

    def statuses(self) -> tuple[Status, ...]:
        """What each query has done so far."""
        now_ms = units.now_ms()
        return tuple(each.status(now_ms) for each in (*self._ended_queries, *self._queries))

    def _publish(self, now_s: float) -> None:
        """Offer the statuses for publication, once a second. `inf` is the end of the run."""
        if self._publisher is None or now_s < self._publish_at_s:
            return
        self._publish_at_s = now_s + INTERVAL_MS / 1000
        now_ms = units.now_ms()
        for each in self._queries:
            is_busy = each.running is not None and now_s < float("inf") and _is_busy(each.running)
            each.busy_since_ms = (each.busy_since_ms or now_ms) if is_busy else None
        for status in self.statuses():
            self._publisher.offer(status)

    def process_available(self) -> None:
        """Wait until all records of now are processed and reported. Restarts as `watch` does.

        Raises PipelineFailed.
        """
        for each in self._queries:
            while (delay_s := self._process_available(each)) is not None:
                time.sleep(delay_s)
                self._start(each)

    def _process_available(self, each: _Running) -> float | None:
        """Return None, or after how many seconds to restart. Raises PipelineFailed."""
        if each.running is None:
            return max(0.0, each.start_at_s - time.monotonic())
        try:
            if each.query.has_clock:
                _process_by_clock(each, each.running)
            else:
                each.running.processAllAvailable()
        except PySparkException as error:
            return _count_restart(each, error)
        deadline_s = time.monotonic() + REPORT_S
        while each.progress.last_batch(each.query.name) < _last_batch(each.running):
            if time.monotonic() >= deadline_s:
                logger.warning("Query %s has not reported its last batch in %g s", each.query.name, REPORT_S)
                break
            time.sleep(0.005)
        return None

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
        session = _session(self._spark, shuffle_partitions)
        starts = checkpoints.starting_offsets(self._spark, directory, partitions)
        plan = make_plan(session, pipeline, replace(self._settings, starts=starts))
        now = stored(plan.description, shuffle_partitions)
        if before is not None:
            checkpoints.check_unchanged(before, now, directory)
        progress = Progress()
        progress.listen(session)
        self._sessions.append((session, progress))
        return _Planned(plan, progress, starts, now if before is None else None)

    def _start(self, each: _Running) -> None:
        each.batches = each.progress.batches(each.query.name)
        _ensure_active(self._spark)
        try:
            each.running = start_query(each.query, each.plan.pipeline, self._settings)
        except PySparkException as error:
            each.running = None
            each.start_at_s = time.monotonic() + _count_restart(each, error)
            return
        each.phase = "running"
        logger.info("Started query %s", each.query.name)

    def _ended(self, each: _Running, now_s: float) -> None:
        assert each.running is not None
        error = each.running.exception()
        each.running = None
        if error is None:
            self._queries.remove(each)
            self._ended_queries.append(each)
            each.phase = "done"
            logger.info("Query %s has processed all records", each.query.name)
            return
        each.start_at_s = now_s + _count_restart(each, error)


def _count_restart(each: _Running, error: Exception) -> float:
    """Return how many seconds to wait before a restart. Raises PipelineFailed if none would help."""
    failure = classify(str(error))
    if each.progress.batches(each.query.name) > each.batches:
        each.restarts = Restarts()
    if not failure.is_retriable or each.restarts.are_over:
        raise _failed(each, failure) from error
    delay_s = each.restarts.delay_s
    logger.warning("Restarting query %s in %g s: %s", each.query.name, delay_s, failure.reason)
    now_ms = units.now_ms()
    each.phase = "restarting"
    each.problem = Problem(now_ms, failure.kind, failure.reason, each.restarts.count, now_ms + round(1000 * delay_s))
    each.restarts = each.restarts.one_more()
    return delay_s


def run_of(plan: Plan, query: Query, settings: Settings, identity: Run) -> Run:
    """Return what the status of a query says about its program."""
    pipeline = plan.pipeline
    described = next(each for each in plan.description.queries if each.name == query.name)
    return replace(
        identity,
        pipeline=pipeline.name,
        query=query.name,
        checkpoint=_absolute(settings.checkpoint(pipeline)),
        once=settings.once,
        exactly_once=pipeline.exactly_once,
        mode=query.mode,
        streams={name: each.topic for name, each in pipeline.streams.items()},
        tables=sorted(each.topic for each in pipeline.inputs.values() if isinstance(each, Table)),
        outputs=described.topics,
        operators=tuple(map(str, query.operators)),
        has_event_time=any(each.time is not None for each in pipeline.streams.values()),
    )


def _absolute(directory: str) -> str:
    return directory if ":" in directory.partition("/")[0] else str(Path(directory).resolve())


def _failed(each: _Running, failure: Failure) -> PipelineFailed:
    each.phase = "failed"
    each.problem = Problem(units.now_ms(), failure.kind, failure.reason, each.restarts.count)
    restarts = f" (after {each.restarts.count} restarts)" if each.restarts.count else ""
    return PipelineFailed(f"Pipeline {each.plan.pipeline.name!r} failed{restarts}: {failure.reason}")


def _session(spark: SparkSession, shuffle_partitions: int) -> SparkSession:
    """Return a session with the settings of `spark` and this number of shuffle partitions."""
    session = spark.newSession()
    for name in spark_settings():
        if name.startswith("spark.sql."):
            session.conf.set(name, str(spark.conf.get(name)))
    session.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    session.conf.set("spark.sql.streaming.pollingDelay", POLLING_DELAY)
    return session


def _ensure_active(spark: SparkSession) -> None:
    """Let Spark find `format("ottla")` in this thread: it looks in the active session of the thread."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as pyspark itself does
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def _is_starting(query: StreamingQuery | None) -> bool:
    """Whether Spark creates the sources of a query, each with a Python process of its own."""
    return query is not None and query.isActive and str(query.status["message"]).startswith("Initializing")


def _stop_after_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Stop a query between two micro-batches, or after the deadline in one."""
    batch = _last_batch(query)
    while query.isActive and time.monotonic() < deadline_s:
        status = query.status
        if not status["isTriggerActive"] or not status["isDataAvailable"] or _last_batch(query) != batch:
            break
        time.sleep(0.01)
    query.stop()


def _process_by_clock(each: _Running, query: StreamingQuery) -> None:
    """Wait until the records of now and the timers of now are processed. Raises StreamingQueryException.

    Such a query runs micro-batches without records, too, so that Spark's `processAllAvailable` does not return. The
    second micro-batch that ends from now on was planned from now on.
    """
    last, deadline_s = _last_batch(query) + 2, time.monotonic() + CLOCK_S
    while _last_batch(query) < last or each.status(units.now_ms()).lag:
        if time.monotonic() >= deadline_s:
            raise StreamsError(f"Query {each.query.name} has not processed its records in {CLOCK_S:g} s")
        if not query.isActive:
            query.processAllAvailable()  # raises the exception of the query
            return
        time.sleep(0.02)


def _is_busy(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _last_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else last.batchId


def count_partitions(client: Mapping[str, str], pipelines: Sequence[Pipeline]) -> dict[str, int]:
    """Return the number of partitions of each input. Raises StreamsError if a topic does not exist."""
    users: dict[str, list[str]] = {}
    for each in pipelines:
        for given in each.inputs.values():
            users.setdefault(given.topic, []).append(each.name)
    with Admin(dict(client)) as admin:
        try:
            described = admin.describe_topics(list(users))
        except PartialFailure as failure:
            missing = {topic for topic, error in failure.errors.items() if isinstance(error, UnknownTopicOrPartition)}
            if missing != set(failure.errors):
                raise
            raise StreamsError(
                *(f"Pipeline {users[topic][0]!r}: the topic {topic!r} does not exist" for topic in sorted(missing)),
                f"Create {'it' if len(missing) == 1 else 'them'} first: ottla topic create {' '.join(sorted(missing))}",
            ) from None
    return {name: len(topic.partitions) for name, topic in described.items()}
