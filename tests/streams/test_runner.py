"""Restarts and ends of queries, with queries that are not Spark's."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.errors import PySparkException

from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import BrokerUnavailable, RequestTimedOut, TlsFailed, TopicAuthorizationFailed
from ottla.streams import (
    Output,
    PipelineFailed,
    StreamsError,
    pipeline,
    planning,
    running_query,
    runtime,
    stream,
    to,
)
from ottla.streams.errors import TemporaryError
from ottla.streams.failures import MOST_RESTARTS
from ottla.streams.inputs import Inputs
from ottla.streams.outputs import Query
from ottla.streams.planning import make_plan
from ottla.streams.running_query import RunningQuery
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings
from ottla.streams.status import Run as RunOfQuery
from ottla.streams.status import Status

UNAVAILABLE = "x\nottla.clients.errors.BrokerUnavailable: no broker\n"
INVALID = "x\nottla.spark.formats.FormatError: Topic 'a', partition 0, offset 7: the value is wrong\n"


@dataclass
class FakeQuery:
    """A query that has ended with an error, or has a batch running for some polls."""

    error: str | None = None
    start_error: str | None = None
    is_of_java: bool = False
    """Whether pyspark has no class for the error of the start."""
    isActive: bool = False  # noqa: N815 - Spark's
    active_polls: int = 0
    has_records: bool = True
    message: str = ""
    polls: int = 0
    was_stopped_after: int | None = None

    def exception(self) -> Exception | None:
        return None if self.error is None else Exception(self.error)

    @property
    def status(self) -> dict[str, Any]:
        self.polls += 1
        is_active = self.polls <= self.active_polls
        return {"isTriggerActive": is_active, "isDataAvailable": self.has_records, "message": self.message}

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - Spark's
        return None

    def stop(self) -> None:
        self.was_stopped_after, self.isActive = self.polls, False


@dataclass
class FakeProgress:
    """Finished micro-batches: as many as the queries that were started, if there are `some`."""

    some: bool
    starts: list[FakeQuery] = field(default_factory=list)

    def batches(self, query: str) -> int:
        return len(self.starts) if self.some else 0

    def status(self, query: str) -> Status:
        return Status(RunOfQuery("p", query))


Run = Callable[..., list[FakeQuery]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Watch a query that ends as these fakes do, one after the other; returns those that were started."""
    monkeypatch.setattr(runtime, "WATCH_S", 0.0)
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(runtime, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    monkeypatch.setattr(running_query, "time", runtime.time)

    def watch(*fakes: FakeQuery, has_progress: bool = False) -> list[FakeQuery]:
        waiting = list(fakes)
        progress = FakeProgress(has_progress)

        def start(*_: object) -> FakeQuery:
            progress.starts.append(waiting.pop(0))
            if progress.starts[-1].start_error is not None:
                kind = FromJava if progress.starts[-1].is_of_java else PySparkException
                raise kind(progress.starts[-1].start_error)
            return progress.starts[-1]

        monkeypatch.setattr(running_query, "start_query", start)
        monkeypatch.setattr(running_query, "ensure_active", lambda _: None)
        plan = SimpleNamespace(pipeline=SimpleNamespace(name="p"))
        runner = Runner(cast("Any", None), [], Settings({}, "x"))
        one = RunningQuery(cast("Any", plan), Query("p", "append", ()), cast("Any", progress))
        runner._queries.append(one)
        one.start(cast("Any", None), Settings({}, "x"))
        runner.watch(threading.Event())
        return progress.starts

    return watch


def test_query_that_ends_without_an_error_is_done(run: Run) -> None:
    assert len(run(FakeQuery())) == 1


def test_unavailable_broker_restarts_a_query(run: Run) -> None:
    assert len(run(FakeQuery(UNAVAILABLE), FakeQuery(UNAVAILABLE), FakeQuery())) == 3


def test_lost_python_process_restarts_a_query_that_is_starting(run: Run) -> None:
    lost = "org.apache.spark.SparkException: Python worker failed to connect back."
    assert len(run(FakeQuery(start_error=lost), FakeQuery(start_error=lost, is_of_java=True), FakeQuery())) == 3


def test_wrong_program_does_not_start_again(run: Run) -> None:
    with pytest.raises(PipelineFailed, match="UNRESOLVED_COLUMN"):
        run(FakeQuery(start_error="[UNRESOLVED_COLUMN] No column `x`"), FakeQuery())


def test_invalid_record_stops_the_run(run: Run) -> None:
    with pytest.raises(PipelineFailed, match="'p' failed: Topic 'a', partition 0, offset 7"):
        run(FakeQuery(INVALID), FakeQuery())


def test_restarts_without_progress_end(run: Run) -> None:
    with pytest.raises(PipelineFailed, match=rf"failed \(after {MOST_RESTARTS} restarts\): no broker"):
        run(*[FakeQuery(UNAVAILABLE)] * (MOST_RESTARTS + 1))


def test_finished_batch_makes_restarts_count_from_zero(run: Run) -> None:
    fakes = [FakeQuery(UNAVAILABLE) for _ in range(2 * MOST_RESTARTS)]
    assert len(run(*fakes, FakeQuery(), has_progress=True)) == len(fakes) + 1


def test_restarts_wait_for_a_query_that_is_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, started = iter(range(0, 10**9, 100)), []
    monkeypatch.setattr(runtime, "WATCH_S", 0.0)
    monkeypatch.setattr(runtime, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(running_query, "time", runtime.time)
    slow = FakeQuery(isActive=True, message="Initializing sources")
    stop = threading.Event()

    def start(query: Query, *_: object) -> FakeQuery:
        started.append((query.name, slow.message))
        stop.set()
        return FakeQuery()

    def publish(_now_s: float) -> None:
        if slow.polls >= 5:
            slow.message = "Waiting for next trigger"

    monkeypatch.setattr(running_query, "start_query", start)
    monkeypatch.setattr(running_query, "ensure_active", lambda _: None)
    runner = Runner(cast("Any", None), [], Settings({}, "x"))
    monkeypatch.setattr(runner, "_offer", publish)
    for name, query in (("slow", slow), ("failed", None)):
        plan = cast("Any", SimpleNamespace(pipeline=SimpleNamespace(name=name)))
        one = RunningQuery(plan, Query(name, "append", ()), cast("Any", FakeProgress(some=False)))
        one.execution = cast("Any", query)
        runner._queries.append(one)
    runner.watch(stop)
    assert started == [("failed", "Waiting for next trigger")]


class Away:
    """A cluster that fails a start some times, with these errors, and then has no problem."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.waited_s: list[float] = []

    def checked(self) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        return []

    def is_set(self) -> bool:
        return False

    def wait(self, delay_s: float) -> bool:
        self.waited_s.append(delay_s)
        return False


def started(monkeypatch: pytest.MonkeyPatch, away: Any) -> None:
    monkeypatch.setattr(runtime, "ensure_active", lambda _: None)
    runner = Runner(cast("Any", None), [], Settings({}, "x"))
    monkeypatch.setattr(runner, "_checked", away.checked)
    runner.start(away)


def test_start_waits_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    several = PartialFailure.of({"a": RequestTimedOut("late"), "b": BrokerUnavailable("no broker")}, {})
    away = Away(BrokerUnavailable("no broker"), several, TemporaryError("stream('a'): no broker"))
    started(monkeypatch, away)
    assert (away.waited_s, away.errors) == ([1.0, 2.0, 4.0], [])


@pytest.mark.parametrize(
    "error",
    [
        StreamsError("there is no column x"),
        TopicAuthorizationFailed("a"),
        TlsFailed("wrong certificate"),
        PartialFailure.of({"a": RequestTimedOut("late"), "b": TopicAuthorizationFailed("b")}, {}),
    ],
)
def test_start_of_a_wrong_program_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    away = Away(error)
    with pytest.raises(type(error)):
        started(monkeypatch, away)
    assert away.waited_s == []


class FromJava(Py4JJavaError):  # type: ignore[misc,unused-ignore]
    """A Java exception that pyspark has no class for."""

    def __init__(self, text: str) -> None:
        self.java_exception, self.text = None, text

    def __str__(self) -> str:
        return f"An error occurred while calling o1.load.\n: {self.text}\n\tat java.base"


LOST = FromJava("java.io.EOFException")


class Offered:
    """A publisher that keeps the statuses."""

    def __init__(self) -> None:
        self.statuses: list[Status] = []

    def offer(self, status: Status) -> None:
        self.statuses.append(status)


@pipeline
def waiting(lines: Any = stream("lines", value="text")) -> Output:
    return to("copies", lines, value="text")


def attempted(monkeypatch: pytest.MonkeyPatch, away: Any) -> tuple[list[tuple[Any, ...]], list[Any]]:
    """Start a pipeline; returns phase, restarts and reason of the statuses that it publishes, and what it raised."""
    monkeypatch.setattr(runtime, "ensure_active", lambda _: None)
    publisher, raised = Offered(), []
    runner = Runner(cast("Any", None), [waiting], Settings({}, "x"), cast("Any", publisher))
    monkeypatch.setattr(runner, "_checked", away.checked)
    try:
        runner.start(away)
    except (PipelineFailed, StreamsError) as error:
        raised.append(error)
    found = [(each.phase, each.problem and (each.problem.restarts, each.problem.reason)) for each in publisher.statuses]
    return found, raised


def test_process_that_is_lost_at_a_start_is_retried_and_the_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(LOST, TemporaryError("Pipeline 'waiting': no broker"))
    statuses, raised = attempted(monkeypatch, away)
    assert statuses == [
        ("restarting", (0, "java.io.EOFException")),
        ("restarting", (1, "Pipeline 'waiting': no broker")),
    ]
    assert (raised, away.waited_s) == ([], [1.0, 2.0])


def test_start_that_fails_for_ever_ends_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses, raised = attempted(monkeypatch, Away(*[LOST] * (MOST_RESTARTS + 1)))
    assert [str(each) for each in raised] == ["Pipeline 'waiting' did not start: java.io.EOFException"]
    assert [phase for phase, _ in statuses] == ["restarting"] * MOST_RESTARTS + ["failed"]
    statuses, raised = attempted(monkeypatch, Away(FromJava("java.lang.IllegalStateException: x")))
    assert [str(each) for each in raised] == ["Pipeline 'waiting' did not start: java.lang.IllegalStateException: x"]


def test_start_ends_after_the_last_restart_or_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(*[BrokerUnavailable("no broker")] * (MOST_RESTARTS + 1))
    with pytest.raises(BrokerUnavailable):
        started(monkeypatch, away)
    assert len(away.waited_s) == MOST_RESTARTS
    stopped = Away(BrokerUnavailable("no broker"))
    monkeypatch.setattr(stopped, "wait", lambda _: True)
    started(monkeypatch, stopped)
    assert stopped.errors == []


@pytest.mark.parametrize(("text", "kind"), [
    ("org.apache.spark.SparkException: Python worker failed to connect back.", TemporaryError),
    (UNAVAILABLE, TemporaryError),
    ("x\nottla.spark.names.OptionError: wrong", StreamsError),
    ("[UNRESOLVED_COLUMN] No column `x`", StreamsError),
])  # fmt: skip
def test_failed_plan_may_succeed_later_if_a_process_or_broker_was_away(text: str, kind: type[StreamsError]) -> None:
    class Failing:
        """A Spark session, and a reader of it, that fails."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *_: object, **__: object) -> Any:
            return self

        def load(self) -> None:
            raise PySparkException(text)

    @pipeline
    def failing(lines: Any = stream("lines", value="text")) -> Output:
        return to("copies", lines.load(), value="text")

    def call() -> None:
        with planning._errors_of(failing):
            planning._outputs(failing, Inputs({"lines": cast("Any", Failing())}, ()))

    for plan in (lambda: make_plan(cast("Any", Failing()), failing, Settings({}, "x")), call):
        with pytest.raises(StreamsError) as raised:
            plan()
        assert type(raised.value) is kind


@pytest.mark.parametrize(("fake", "polls"), [
    (FakeQuery(isActive=True, active_polls=3), 4),
    (FakeQuery(isActive=True, active_polls=3, has_records=False), 1),
    (FakeQuery(isActive=False), 0),
])  # fmt: skip
def test_stop_waits_for_the_end_of_a_batch(monkeypatch: pytest.MonkeyPatch, fake: FakeQuery, polls: int) -> None:
    monkeypatch.setattr(running_query.time, "sleep", lambda _: None)
    running_query._stop_after_batch(cast("Any", fake), deadline_s=float("inf"))
    assert fake.was_stopped_after == polls


def test_stop_waits_no_longer_than_its_deadline() -> None:
    fake = FakeQuery(isActive=True, active_polls=10**9)
    running_query._stop_after_batch(cast("Any", fake), deadline_s=0.0)
    assert fake.was_stopped_after is not None


def test_sigterm_sets_the_event_and_the_handler_is_restored() -> None:
    stop, before = runtime.Stop(), signal.getsignal(signal.SIGTERM)
    with runtime._signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
