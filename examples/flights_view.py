"""The view of the running example: live at a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress

import pandas as pd
from flights_broker import Failure
from flights_check import means
from flights_replay import Replay, Results
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ottla.clients import Admin, ClientError
from ottla.streams.observing import read_statuses
from ottla.streams.status import Status

PIPELINES = ("delays", "alerts")
STATUS_EVERY_S = 1.0
STALLED_S = 240.0
"""A run ends after so long without progress. On a busy machine, it may take as long as it needs."""
LINE_EVERY_S = 5.0
ROWS = 5


def lag(admin: Admin, group: str) -> int | None:
    """How many records a group is behind, as any lag tool sees it; None while it has committed nothing."""
    partitions = admin.group_lag(group)
    return sum(partition.lag for partition in partitions.values()) if partitions else None


def number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def duration(seconds: float) -> str:
    """Minutes and seconds: 1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Statuses(threading.Thread):
    """The statuses that the pipelines publish, as `ottla stream list` shows them."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="statuses", daemon=True)
        self.latest: dict[str, Status] = {}
        self._address = bootstrap
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(STATUS_EVERY_S):
            with suppress(ClientError, OSError):  # the next round reads it
                found = read_statuses({"bootstrap.servers": self._address})
                self.latest = {each.run.query: each for each in found}

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(30)


class View:
    """The sent records, Spark's progress, and the results; `expected` is how many results there will be."""

    def __init__(self, replay: Replay, results: Results, statuses: Statuses, admin: Admin, expected: int) -> None:
        self.lags: dict[str, int | None] = {}
        self._replay = replay
        self._results = results
        self._statuses = statuses
        self._admin = admin
        self._expected = expected
        self._started = time.monotonic()
        self._acknowledged: deque[tuple[float, int]] = deque([(self._started, 0)], maxlen=20)

    def refresh(self) -> Group:
        """Ask for the lags, and draw everything."""
        self._acknowledged.append((time.monotonic(), self._replay.acknowledged))
        self.lags = {pipeline: lag(self._admin, pipeline) for pipeline in PIPELINES}
        return Group(self._progress(), Text(), self._spark(), Text(), self._airlines(), Text(), self._alerts())

    def progress(self) -> tuple[object, ...]:
        """The numbers that change while anything is sent, planned, processed or committed."""
        queries = [
            (name, status.run.run_id, status.batches, status.records, status.busy_since_ms)
            for name, status in sorted(self._statuses.latest.items())
        ]
        results, alerts = len(self._results.delays), len(self._results.alerts)
        return self._replay.acknowledged, results, alerts, *self.lags.values(), *queries

    def line(self) -> str:
        """The same in a line of less than 80 characters."""
        behind = "/".join(number(self.lags.get(pipeline)) for pipeline in PIPELINES)
        return (
            f"{duration(time.monotonic() - self._started):>5}  {self._day():%d %b} {self._sent():4.0%}"
            f"  lag {behind:>15}  {len(self._results.delays):>6,} results  {len(self._results.alerts):>5,} alerts"
        )

    def _day(self) -> pd.Timestamp:
        return pd.Timestamp("2013-01-01") + pd.Timedelta(days=max(0, self._replay.days_sent - 1))

    def _sent(self) -> float:
        return self._replay.days_sent / max(1, self._replay.days)

    def _rate(self) -> float:
        (then, before), (now, count) = self._acknowledged[0], self._acknowledged[-1]
        return (count - before) / max(0.001, now - then)

    def _progress(self) -> Table:
        shown = Table.grid(padding=(0, 1), expand=True)
        shown.add_column()
        shown.add_column(ratio=1)
        shown.add_column(justify="right", no_wrap=True)
        shown.add_column(no_wrap=True)
        sent, found = self._sent(), len(self._results.delays)
        day = f"{self._day():%d %b}, day {self._replay.days_sent} of {self._replay.days}"
        left = "all sent" if self._replay.done else f"{duration(self._replay.seconds_left)} left"
        if self._replay.waiting:
            left = "Spark warms up"
        shown.add_row("Sent", ProgressBar(1.0, sent), f"{sent:4.0%}", f"{day}, {left}")
        share = found / max(1, self._expected)
        shown.add_row("Results", ProgressBar(1.0, share), f"{share:4.0%}", f"{found:,} of {self._expected:,}")
        sums = f"{self._replay.acknowledged:,} events acknowledged, {self._rate():,.0f}/s"
        shown.add_row("Events", Text(sums), "", f"{duration(time.monotonic() - self._started)} since the start")
        return shown

    def _spark(self) -> Table:
        shown = Table(box=None, padding=(0, 2, 0, 0))
        shown.add_column("Pipeline", min_width=8)
        for column in ("Rows/s", "Batch", "Took", "Lag", "Written"):
            shown.add_column(column, justify="right", min_width=8)
        for pipeline in PIPELINES:
            status = self._statuses.latest.get(pipeline)
            batch = None if status is None else status.batch
            written = self._results.delays if pipeline == "delays" else self._results.alerts
            shown.add_row(
                pipeline,
                f"{batch.processed_per_s:,.0f}" if batch else "-",
                str(batch.number) if batch else "-",
                f"{batch.duration_ms / 1000:.1f} s" if batch else "-",
                number(self.lags.get(pipeline)),
                f"{len(written):,}",
            )
        return shown

    def _airlines(self) -> Table:
        shown = Table(box=None, padding=(0, 2, 0, 0))
        shown.add_column("Airlines with the longest delays", min_width=32, no_wrap=True)
        shown.add_column("Flights", justify="right", min_width=8)
        shown.add_column("Mean delay, min", justify="right")
        rows = means(self._results)[:ROWS]
        for name, flights, mean in rows:
            shown.add_row(name, f"{flights:,}", f"{mean:.1f}")
        for _ in range(ROWS - len(rows)):
            shown.add_row("-", "", "")
        return shown

    def _alerts(self) -> Group:
        rows = [
            f"{row['hour'][:10]}  {row['carrier']}{row['flight']:<5} {row['origin']} to {row['dest']}"
            f"  {row['dep_delay'] / 60:4.1f} h  {row.get('manufacturer', '')} {row.get('model', '')}"
            for row in list(self._results.latest)[-ROWS:]
        ]
        rows += ["-"] * (ROWS - len(rows))
        lines = [Text(row, no_wrap=True, overflow="ellipsis") for row in rows]
        return Group(Text("Latest alerts: three hours late or more", style="bold"), *lines)


def watch(console: Console, view: View, done: Callable[[], bool], failed: Callable[[], str | None]) -> None:
    """Show what happens until it is done. Raises Failure if something failed, or if nothing happens for too long."""
    progress: tuple[object, ...] = ()
    since = time.monotonic()
    live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
    next_line = 0.0
    with live or nullcontext():
        while True:
            shown = view.refresh()
            ended = done()
            if live is not None:
                live.update(shown)
            elif ended or time.monotonic() >= next_line:
                console.print(view.line(), highlight=False, soft_wrap=True)
                next_line = time.monotonic() + LINE_EVERY_S
            problem = failed()
            if problem is not None:
                raise Failure(problem)
            if ended:
                return
            before, progress = progress, view.progress()
            if progress != before:
                since = time.monotonic()
            elif time.monotonic() > since + STALLED_S:
                raise Failure(
                    f"no progress for {STALLED_S:.0f} s: {view.line().strip()}\n"
                    "Look for the reason in Spark's messages. If other programs keep the machine busy, end them; "
                    "`--days 30` needs less of it."
                )
            time.sleep(0.4)
