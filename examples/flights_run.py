"""One run of the example, from the start of the broker to the verdict."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flights_broker import Failure, own_broker
from flights_check import check, means, weekly
from flights_data import Data, Event, days
from flights_plot import plot
from flights_processes import end_descendants, start_spark
from flights_replay import Replay, Results, create_topics, send_tables
from flights_view import View, watch
from rich.console import Console
from rich.table import Table

from ottla.clients import Admin, ClientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

console = Console()


def say(text: str) -> None:
    """A line, which the terminal may wrap but nothing else does."""
    console.print(text, soft_wrap=True)


def summary(data: Data, replay: Replay, results: Results, queries: list[dict[str, Any]]) -> None:
    """What was processed, and the airlines."""
    shown = Table(title="Departures from New York, 2013", title_justify="left")
    shown.add_column("Airline")
    shown.add_column("Flights", justify="right")
    shown.add_column("Mean delay, min", justify="right")
    for name, flights, mean in means(results):
        shown.add_row(name, f"{flights:,}", f"{mean:.1f}")
    console.print(shown)
    say(
        f"sent {replay.acknowledged:,} events ({replay.size / 1e6:.0f} MB) in {replay.seconds:.0f} s; "
        f"{len(data.airlines)} airlines and {len(data.planes):,} planes as tables"
    )
    for query in queries:
        say(
            f"{query['name']}: {query['rows']:,} rows in {query['batches']} micro-batches, "
            f"{query['rows'] / max(0.001, query['busy_s']):,.0f} rows/s while busy"
        )


class Progress:
    """Adds up the micro-batches of a query, each once."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: set[int] = set()
        self.total = {"name": query.name, "rows": 0, "batches": 0, "busy_s": 0.0}

    def take(self) -> None:
        for progress in self._query.recentProgress:
            rows = progress["numInputRows"]
            if rows and progress["batchId"] not in self._seen:
                self._seen.add(progress["batchId"])
                self.total["rows"] += rows
                self.total["batches"] += 1
                self.total["busy_s"] += progress["batchDuration"] / 1000


@contextmanager
def spark_in(directory: Path, master: str | None) -> Iterator[SparkSession]:
    """A session that ends with the block, in seconds at the most. Raises Failure for an exception in Java."""
    try:
        session = start_spark(directory, master)
        yield session
    except BaseException as error:
        problem = java_problem(error)
        # Stopping the queries one by one would take seconds, and nothing needs their state any more.
        end_descendants()
        if problem is not None:
            raise Failure(f"Spark failed: {problem}") from error
        raise
    session.stop()


def java_problem(error: BaseException) -> str | None:
    """The message of an exception in Java without its stack trace; None for other exceptions."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return str(error) if isinstance(error, Py4JError | PySparkException) else None


def prepare(bootstrap: str, limit: int) -> tuple[Data, list[list[Event]]]:
    """The data and its events day by day; the tables are sent."""
    data = Data.load(limit)
    year = list(days(data))
    send_tables(bootstrap, data)
    return data, year


def run(bootstrap: str, directory: Path, options: argparse.Namespace) -> bool:
    """The whole run against one broker; whether everything held."""
    from flights_spark import EXTREME_DELAY_MINUTES

    create_topics(bootstrap)
    started = time.monotonic()
    background = ThreadPoolExecutor(1)
    preparing = background.submit(prepare, bootstrap, options.days)  # while Java starts
    background.shutdown(wait=False)
    with spark_in(directory, options.master) as spark:
        say(f"Spark {spark.version} runs at {spark.sparkContext.master} ({time.monotonic() - started:.1f} s)")
        data, year = preparing.result()
        say(f"{sum(map(len, year)):,} events of {len(year) - 1} days made ready ({time.monotonic() - started:.1f} s)")
        say("the first week is sent now; the rest follows when its results are back")
        results = Results(bootstrap)
        replay = Replay(bootstrap, year, options.seconds, results.first)
        tallies, lags = stream(spark, replay, results, data, directory)
    summary(data, replay, results, tallies)
    plot(
        options.out,
        "Departures from New York, 2013",
        {name: mean for name, _, mean in means(results)},
        weekly(data, results),
    )
    say(f"a plot is in {options.out}")
    claims, differences = check(data, replay, results, lags, EXTREME_DELAY_MINUTES)
    for sentence in differences:
        say(f"  [red]{sentence}[/red]")
    for claim, held in claims:
        say(f"[green]✓ {claim}[/green]" if held else f"[bold red]✗ {claim}: NO[/bold red]")
    return all(held for _, held in claims)


def stream(
    spark: SparkSession, replay: Replay, results: Results, data: Data, directory: Path
) -> tuple[list[dict[str, Any]], dict[str, int | None]]:
    """Send the year through the pipeline until all results are back: what each query did, and the lags at the end."""
    from flights_spark import EXTREME_DELAY_MINUTES, Pipeline

    groups, late = len(data.flights.groupby(["carrier", "time_hour"])), len(data.extreme(EXTREME_DELAY_MINUTES))
    try:
        queries = Pipeline(spark, replay.bootstrap, str(directory / "checkpoints")).start()
        tallies = [Progress(query) for query in queries]
        results.start()
        replay.start()
        with Admin(bootstrap_servers=replay.bootstrap) as admin:
            view = View(replay, results, queries, admin, groups)

            def failed() -> str | None:
                for query, tally in zip(queries, tallies, strict=True):
                    tally.take()
                    if query.exception() is not None:
                        return f"the query {query.name} failed: {query.exception()}"
                problem = results.failure or (replay.failures[0] if replay.failures else None)
                return None if problem is None else str(problem)

            def done() -> bool:
                arrived = len(results.delays) >= groups and len(results.alerts) >= late
                return replay.done and arrived and all(behind == 0 for behind in view.lags.values())

            watch(console, view, done, failed)
        for query in queries:
            query.stop()
    finally:
        replay.stop()
        results.stop()
    return [tally.total for tally in tallies], view.lags


def run_all(options: argparse.Namespace) -> int:
    """The run with a broker and a temporary directory of its own; the exit code."""
    started = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="ottla-flights-"))
    try:
        with ExitStack() as stack:
            bootstrap = options.bootstrap or stack.enter_context(own_broker(directory))
            say(f"the broker serves at {bootstrap} ({time.monotonic() - started:.1f} s)")
            held = run(bootstrap, directory, options)
    except (Failure, ClientError, OSError, RuntimeError, ImportError) as error:
        say(f"[bold red]{error}[/bold red]")
        log = directory / "spark.log"
        if log.exists():
            options.out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, options.out.parent)
            say(f"the messages of Spark are in {options.out.parent / log.name}")
        return 1
    finally:
        end_descendants()  # Java ends only after this process otherwise
        shutil.rmtree(directory, ignore_errors=True)
    say(f"{time.monotonic() - started:.1f} s in all")
    return 0 if held else 1
