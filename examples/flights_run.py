"""One run of the example, from the start of the broker to the verdict."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flights_broker import Failure, own_broker
from flights_check import check, means, weekly
from flights_data import Data, Event, days
from flights_plot import plot
from flights_processes import end_descendants, start_pipelines
from flights_replay import EXTREME_DELAY_MINUTES, Replay, Results, create_topics, send_tables
from flights_view import Statuses, View, watch
from rich.console import Console
from rich.table import Table

from ottla.clients import Admin, ClientError

PIPELINES_END_S = 180.0
"""The pipelines wait a minute for the end of their micro-batches, and then for Spark's end."""
console = Console()


def say(text: str) -> None:
    """A line, which the terminal may wrap but nothing else does."""
    console.print(text, soft_wrap=True)


def summary(data: Data, replay: Replay, results: Results, said: str) -> None:
    """Print the number of processed records, and the airlines."""
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
    for line in said.splitlines():
        say(f"pipeline {line}")


def prepare(bootstrap: str, limit: int) -> tuple[Data, list[list[Event]]]:
    """The data and its events day by day; the tables are sent."""
    data = Data.load(limit)
    year = list(days(data))
    send_tables(bootstrap, data)
    return data, year


@contextmanager
def pipelines_in(directory: Path, bootstrap: str, master: str | None) -> Iterator[subprocess.Popen[bytes]]:
    """The pipelines in a process of their own; it has ended after the block, at the latest."""
    process = start_pipelines(bootstrap, directory, master)
    try:
        yield process
    finally:
        # After an exception, stopping the queries one by one would take seconds, and nothing needs their state.
        end_descendants()


def run(bootstrap: str, directory: Path, options: argparse.Namespace) -> bool:
    """The whole run against one broker; whether everything held."""
    create_topics(bootstrap)
    with pipelines_in(directory, bootstrap, options.master) as process:
        say("`ottla stream run examples/flights_spark.py` starts two pipelines on Spark")
        started = time.monotonic()
        data, year = prepare(bootstrap, options.days)
        say(f"{sum(map(len, year)):,} events of {len(year) - 1} days made ready ({time.monotonic() - started:.1f} s)")
        say("the first week is sent now; the rest follows when its results are back")
        results = Results(bootstrap)
        replay = Replay(bootstrap, year, options.seconds, results.first)
        lags = stream(process, replay, results, data)
        process.terminate()  # it ends after its running micro-batches, while the results are checked
        claims, differences = check(data, replay, results, lags, EXTREME_DELAY_MINUTES)
        code = process.wait(PIPELINES_END_S)
    summary(data, replay, results, (directory / "pipelines.out").read_text())
    averages = {name: mean for name, _, mean in means(results)}
    plot(options.out, "Departures from New York, 2013", averages, weekly(data, results))
    say(f"a plot is in {options.out}")
    for sentence in differences:
        say(f"  [red]{sentence}[/red]")
    claims.append(("the pipelines ended after their running micro-batches", code == 0))
    for claim, held in claims:
        say(f"[green]✓ {claim}[/green]" if held else f"[bold red]✗ {claim}: NO[/bold red]")
    return all(held for _, held in claims)


def stream(process: subprocess.Popen[bytes], replay: Replay, results: Results, data: Data) -> dict[str, int | None]:
    """Send the year through the pipelines until all results are back: the lags at the end."""
    groups, late = len(data.flights.groupby(["carrier", "time_hour"])), len(data.extreme(EXTREME_DELAY_MINUTES))
    statuses = Statuses(replay.bootstrap)
    try:
        statuses.start()
        results.start()
        replay.start()
        with Admin(bootstrap_servers=replay.bootstrap) as admin:
            view = View(replay, results, statuses, admin, groups)

            def failed() -> str | None:
                if process.poll() is not None:
                    return f"the pipelines ended with exit code {process.returncode}"
                problem = results.failure or (replay.failures[0] if replay.failures else None)
                return None if problem is None else str(problem)

            def done() -> bool:
                arrived = len(results.delays) >= groups and len(results.alerts) >= late
                return replay.done and arrived and all(behind == 0 for behind in view.lags.values())

            watch(console, view, done, failed)
    finally:
        replay.stop()
        results.stop()
        statuses.stop()
    return view.lags


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
            say(f"Spark's messages are in {options.out.parent / log.name}")
        return 1
    finally:
        end_descendants()
        shutil.rmtree(directory, ignore_errors=True)
    say(f"{time.monotonic() - started:.1f} s in all")
    return 0 if held else 1
