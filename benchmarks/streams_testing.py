"""How long a step of a test takes with the fixture `ottla_streams`: send records, read what the pipeline wrote.

    python -m benchmarks.streams_testing [STEPS]

Runs itself in pytest, so that broker, session and fixture are the same as in a test. The first steps of each pipeline
warm up Java and are not counted. The parts of a step: `send`; what Spark reports of its micro-batches, of which
`addBatch` has the tasks; `wait`, in which Spark has not noticed the records or its end yet; and `read`, the records of
the output. CPU includes the test, the broker in its thread, Java and Python's workers.
"""

from __future__ import annotations

import datetime as dt
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from rich.console import Console
from rich.table import Table

from benchmarks.process_times import ProcessTimes, children_of
from ottla.streams import Output, Pipeline, pipeline, stream, to

if TYPE_CHECKING:
    from ottla.streams.testing import PipelineTest

STEPS = "OTTLA_BENCH_STEPS"
WARM_UPS = 15
LIMIT_MS = 600
CLICK = "user STRING, at TIMESTAMP"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
REPORTED = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


@pipeline(exactly_once=True)
def words(lines: Any = stream("lines", "text")) -> Output:
    """No state."""
    return to("words", lines.select(F.upper("value").alias("value")), value="text")


@pipeline(exactly_once=True)
def counts(lines: Any = stream("lines", "text", key="text")) -> Output:
    """A running count, whose updates are written."""
    return to("counts", lines.groupBy("key").count(), key="key", mode="updates")


@pipeline(exactly_once=True)
def hours(clicks: Any = stream("clicks", "json", schema=CLICK, time="at", late="0 seconds")) -> Output:
    """A windowed aggregate, written when the event time has passed the end of the window."""
    counted = clicks.groupBy(F.window("at", "1 hour"), "user").count()
    return to("hours", counted.select("user", "window.start", "count"), key="user", mode="final")


def _send_lines(test: PipelineTest, number: int) -> None:
    test.send("lines", f"line {number}", key=f"key-{number % 3}")


def _send_clicks(test: PipelineTest, number: int) -> None:
    """Clicks of one hour; then the event time moves to the next one."""
    at = START + dt.timedelta(hours=number)
    test.send("clicks", *({"user": user, "at": at.isoformat()} for user in ("a", "b")))
    test.advance(at + dt.timedelta(hours=1))


CASES: dict[str, tuple[Pipeline, Callable[[PipelineTest, int], None], str, int]] = {
    "stateless": (words, _send_lines, "words", 1),
    "count with updates": (counts, _send_lines, "counts", 1),
    "windows, event time moved": (hours, _send_clicks, "hours", 2),
}


def _step(test: PipelineTest, send: Callable[[PipelineTest, int], None], topic: str, number: int) -> dict[str, float]:
    """Run a step, and return the milliseconds of its parts; `rows` is how many results there were."""
    query = test._runner._queries[0].execution if number else None  # noqa: SLF001
    last = -1 if query is None or query.lastProgress is None else query.lastProgress.batchId
    begin = time.perf_counter()
    send(test, number)
    sent = time.perf_counter()
    test.process()
    processed = time.perf_counter()
    found = test._new(topic)  # noqa: SLF001
    end = time.perf_counter()
    parts: defaultdict[str, float] = defaultdict(float)
    running = test._runner._queries[0].execution  # noqa: SLF001
    assert running is not None
    for report in running.recentProgress:
        if report.batchId > last and report.numInputRows + report.durationMs.get("addBatch", 0):
            parts["micro-batches"] += 1
            for name in REPORTED:
                parts[name] += report.durationMs.get(name, 0)
            parts["Spark's other work"] += report.durationMs["triggerExecution"]
    reported = parts["Spark's other work"]
    parts["Spark's other work"] -= sum(parts[name] for name in REPORTED)
    times = {"step": end - begin, "send": sent - begin, "read": end - processed}
    rest = (processed - sent) * 1000 - reported
    return {**{name: 1000 * s for name, s in times.items()}, "wait": rest, **parts, "rows": float(len(found))}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_steps(name: str, ottla_streams: Callable[[Pipeline], PipelineTest]) -> None:
    """Measure one pipeline."""
    declared, send, topic, rows = CASES[name]
    test, steps = ottla_streams(declared), int(os.environ[STEPS])
    processes = ProcessTimes(children_of(os.getpid(), 0))
    processes.watch(lambda: True)
    found, used = [], 0.0
    for number in range(WARM_UPS + steps):
        if number == WARM_UPS:
            used = sum(processes.seconds().values()) + time.process_time()
        parts = _step(test, send, topic, number)
        assert parts.pop("rows") == rows
        found.append(parts)
    used = sum(processes.seconds().values()) + time.process_time() - used
    _show(name, found[WARM_UPS:], used * 1000 / steps)


def _show(name: str, found: list[dict[str, float]], cpu_ms: float) -> None:
    load = os.getloadavg()[0]
    table = Table(title=f"{name}: {len(found)} steps (load {load:.1f})", title_justify="left")
    for heading in ("ms", "median", "p90"):
        table.add_column(heading, justify="left" if heading == "ms" else "right")
    for part in found[0]:
        values = [each.get(part, 0.0) for each in found]
        p90 = statistics.quantiles(values, n=10)[-1]
        is_total = part == "step"
        label = f"step (limit {LIMIT_MS})" if is_total else part
        table.add_row(label, f"{statistics.median(values):.0f}", f"{p90:.0f}")
    table.add_row("CPU, mean", f"{cpu_ms:.0f}", "")
    Console(width=100).print(table)


def main() -> int:
    """Run the pipelines in pytest."""
    os.environ[STEPS] = sys.argv[1] if len(sys.argv) > 1 else "40"
    return pytest.main(["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", __file__])


if __name__ == "__main__":
    sys.exit(main())
