"""Runs pipelines: starts their queries, restarts those that may succeed, and ends after the running micro-batches.

Everything runs in the driver: one session of Spark for each pipeline, since each has its number of shuffle partitions.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.clients.admin import Admin
from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import UnknownTopicOrPartition
from ottla.spark.session import session as spark_session
from ottla.spark.session import settings as spark_settings
from ottla.streams import checkpoints
from ottla.streams.declarations import Pipeline
from ottla.streams.description import stored
from ottla.streams.errors import PipelineFailed, StreamsError
from ottla.streams.failures import Failure, Restarts, classify
from ottla.streams.loading import choose, pipelines_of
from ottla.streams.outputs import Query, start_query
from ottla.streams.planning import Plan, check, make_plan
from ottla.streams.progress import Progress
from ottla.streams.settings import Settings

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger("ottla.streams")

WATCH_S: Final = 0.2
REPORT_S: Final = 10.0
BATCH_END_S: Final = 60.0
"""How long a stop waits for the end of a micro-batch."""
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
) -> None:
    """Run pipelines until SIGTERM or SIGINT, or with `once` up to the current ends of their topics.

    Without pipelines, runs those of the program's main module. `bootstrap` is by default $OTTLA_BOOTSTRAP or
    127.0.0.1:9092, `checkpoints` $OTTLA_CHECKPOINTS or the directory `checkpoints`. `client` are settings of Kafka's
    clients. Uses the running session of Spark, or starts one with `master`. Blocks. Raises StreamsError for a wrong
    program, and PipelineFailed if a pipeline fails and a restart would not help; the other ones are stopped.
    """
    chosen = choose(pipelines or pipelines_of(sys.modules["__main__"]), (), "The program")
    settings = Settings(
        {"bootstrap.servers": bootstrap or os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP, **(client or {})},
        checkpoints or os.environ.get("OTTLA_CHECKPOINTS") or "checkpoints",
        once,
    )
    stop = threading.Event()
    with _signals(stop):
        spark = spark_session(" ".join(each.name for each in chosen), master)
        runner = Runner(spark, chosen, settings)
        try:
            runner.start()
            runner.watch(stop)
        finally:
            runner.stop()


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


class Runner:
    """The queries of some pipelines in one session of Spark. Call `start`, `watch`, then always `stop`."""

    def __init__(self, spark: SparkSession, pipelines: Sequence[Pipeline], settings: Settings) -> None:
        self._spark = spark
        self._pipelines = pipelines
        self._settings = settings
        self._queries: list[_Running] = []
        self._sessions: list[tuple[SparkSession, Progress]] = []

    def start(self) -> None:
        """Check all pipelines, then start their queries. Raises StreamsError, and exceptions of Spark."""
        partitions = count_partitions(self._settings.client, self._pipelines)
        plans = [self._plan(each, sum(partitions[s.topic] for s in each.streams.values())) for each in self._pipelines]
        check(*(plan for plan, _ in plans))
        for plan, progress in plans:
            for query in plan.queries:
                self._queries.append(_Running(plan, query, progress))
                self._start(self._queries[-1])

    def watch(self, stop: threading.Event) -> None:
        """Wait until all queries have ended or `stop` is set, and restart failed ones. Raises PipelineFailed."""
        while not stop.is_set() and self._queries:
            now_s = time.monotonic()
            for each in list(self._queries):
                if each.running is None:
                    if now_s >= each.start_at_s:
                        self._start(each)
                elif not each.running.isActive:
                    self._ended(each, now_s)
            stop.wait(WATCH_S)

    def stop(self) -> None:
        """Stop all queries, each after its running micro-batch. Blocks for at most a minute."""
        deadline_s = time.monotonic() + BATCH_END_S
        for each in self._queries:
            if each.running is not None:
                _stop_after_batch(each.running, deadline_s)
        self._queries.clear()
        for session, progress in self._sessions:
            session.streams.removeListener(progress)
        self._sessions.clear()

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
        assert each.running is not None
        try:
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

    def _plan(self, pipeline: Pipeline, partitions: int) -> tuple[Plan, Progress]:
        directory = self._settings.checkpoint(pipeline)
        before = checkpoints.load(self._spark, directory)
        cores = self._spark.sparkContext.defaultParallelism
        shuffle_partitions = before.shuffle_partitions if before is not None else max(1, min(partitions, cores))
        session = _session(self._spark, shuffle_partitions)
        plan = make_plan(session, pipeline, self._settings)
        now = stored(plan.description, shuffle_partitions)
        if before is not None:
            checkpoints.check_unchanged(before, now, directory)
        elif not plan.description.problems:
            checkpoints.store(self._spark, directory, now)
        progress = Progress()
        session.streams.addListener(progress)
        self._sessions.append((session, progress))
        return plan, progress

    def _start(self, each: _Running) -> None:
        each.batches = each.progress.batches(each.query.name)
        try:
            each.running = start_query(each.query, each.plan.pipeline, self._settings)
        except PySparkException as error:
            raise _failed(each, classify(str(error))) from error
        logger.info("Started query %s", each.query.name)

    def _ended(self, each: _Running, now_s: float) -> None:
        assert each.running is not None
        error = each.running.exception()
        if error is None:
            self._queries.remove(each)
            logger.info("Query %s has processed all records", each.query.name)
            return
        each.running, each.start_at_s = None, now_s + _count_restart(each, error)


def _count_restart(each: _Running, error: Exception) -> float:
    """Return how many seconds to wait before a restart. Raises PipelineFailed if none would help."""
    failure = classify(str(error))
    if each.progress.batches(each.query.name) > each.batches:
        each.restarts = Restarts()
    if not failure.is_retriable or each.restarts.are_over:
        raise _failed(each, failure) from error
    delay_s = each.restarts.delay_s
    logger.warning("Restarting query %s in %g s: %s", each.query.name, delay_s, failure.reason)
    each.restarts = each.restarts.one_more()
    return delay_s


def _failed(each: _Running, failure: Failure) -> PipelineFailed:
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


def _stop_after_batch(query: StreamingQuery, deadline_s: float) -> None:
    """Stop a query between two micro-batches, or after the deadline in one."""
    batch = _last_batch(query)
    while query.isActive and time.monotonic() < deadline_s:
        status = query.status
        if not status["isTriggerActive"] or not status["isDataAvailable"] or _last_batch(query) != batch:
            break
        time.sleep(0.01)
    query.stop()


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
                *(f"Pipeline {users[topic][0]!r}: the topic {topic!r} does not exist" for topic in sorted(missing))
            ) from None
    return {name: len(topic.partitions) for name, topic in described.items()}
