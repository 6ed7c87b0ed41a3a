"""The view of examples/flights.py while it runs, at a terminal and elsewhere."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest
from rich.console import Console

from ottla.clients import TopicPartition
from ottla.streams.status import Batch, Run, Status

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of the example that need no Spark."""
    monkeypatch.syspath_prepend(EXAMPLES)
    names = ("flights_replay", "flights_view")
    modules = {name: __import__(name) for name in names}
    yield modules
    for name in [name for name in sys.modules if name.startswith("flights_")]:
        del sys.modules[name]


class Lags:
    """An admin client whose groups have these lags; a group without one has committed nothing."""

    def __init__(self, **lags: int) -> None:
        self.lags = lags

    def group_lag(self, group: str) -> dict[TopicPartition, Any]:
        return {TopicPartition(group, 0): SimpleNamespace(lag=self.lags[group])} if group in self.lags else {}


def replay(days_sent: int) -> SimpleNamespace:
    return SimpleNamespace(
        acknowledged=1000 * days_sent,
        days=366,
        days_sent=days_sent,
        done=days_sent == 366,
        seconds_left=(366 - days_sent) / 6,
        waiting=days_sent == 7,
    )


def statuses(has_batch: bool) -> SimpleNamespace:
    batch = Batch(7, 0, 4321, {}, 50_000, 12345.6) if has_batch else None
    return SimpleNamespace(latest={name: Status(Run(name, name), batch=batch) for name in ("delays", "alerts")})


def results(examples: dict[str, ModuleType], count: int = 0) -> Any:
    found = examples["flights_replay"].Results("nowhere:1")
    for i in range(count):
        found.take(
            "delays", {"carrier": "XX", "hour": str(i), "name": f"Airline {i % 20} of a long name", "flights": 3}
        )
        alert = {"hour": f"2013-07-01T{i}", "carrier": "XX", "flight": i, "origin": "JFK", "dest": "SFO"}
        plane = {"manufacturer": "BOMBARDIER INC AND OTHERS", "model": "CL-600-2D24"}
        found.take("alerts", alert | plane | {"dep_delay": 200})
    return found


def view(examples: dict[str, ModuleType], lags: Lags, days_sent: int = 183, count: int = 0) -> Any:
    view_of: Any = examples["flights_view"].View
    shown: Any = view_of(replay(days_sent), results(examples, count), statuses(count > 0), lags, 60_142)
    return shown


def drawn(shown: Any, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    console.print(shown.refresh())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_lag_of_a_group_that_committed_nothing_is_unknown_and_not_zero(examples: dict[str, ModuleType]) -> None:
    lag = examples["flights_view"].lag
    assert lag(Lags(), "delays") is None
    assert lag(Lags(delays=0), "delays") == 0
    shown = view(examples, Lags(alerts=5957))
    rows = {row.split()[0]: row.split() for row in drawn(shown, 80) if row.startswith(("delays", "alerts"))}
    assert rows["delays"] == ["delays", "-", "-", "-", "-", "0"]
    assert rows["alerts"] == ["alerts", "-", "-", "-", "5,957", "0"]
    assert "lag         -/5,957" in shown.line()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [0, 100])
def test_view_fits_a_terminal(examples: dict[str, ModuleType], width: int, count: int) -> None:
    rows = drawn(view(examples, Lags(delays=123_456, alerts=123_456), count=count), width)
    assert len(rows) <= 23
    assert max(map(len, rows)) <= width


def test_progress_of_the_year_is_shown_with_the_time_that_is_left(examples: dict[str, ModuleType]) -> None:
    rows = drawn(view(examples, Lags(), days_sent=183, count=50), 80)
    assert "50%" in rows[0]
    assert "02 Jul, day 183 of 366, 0:30 left" in rows[0]
    assert "50 of 60,142" in rows[1]
    assert drawn(view(examples, Lags(), days_sent=0), 80)[0].startswith("Sent")
    assert "day 7 of 366, Spark warms up" in drawn(view(examples, Lags(), days_sent=7), 80)[0]
    assert "day 366 of 366, all sent" in drawn(view(examples, Lags(), days_sent=366), 80)[0]


def test_line_has_less_than_80_characters(examples: dict[str, ModuleType]) -> None:
    shown = view(examples, Lags(delays=362_893, alerts=336_777), days_sent=366, count=100)
    shown.refresh()
    assert len(shown.line()) < 80
    assert "31 Dec 100%" in shown.line() or "01 Jan 100%" in shown.line()


def test_watch_writes_whole_lines_where_there_is_no_terminal(
    examples: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    flights_view = examples["flights_view"]
    monkeypatch.setattr(flights_view, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(flights_view.time, "sleep", lambda _: None)
    rounds = iter([False, False, True])
    output = io.StringIO()
    console = Console(file=output, width=40)
    flights_view.watch(console, view(examples, Lags()), lambda: next(rounds), lambda: None)
    lines = output.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.endswith("alerts") for line in lines)


def test_watch_fails_with_the_problem_of_a_query(examples: dict[str, ModuleType]) -> None:
    flights_view = examples["flights_view"]
    with pytest.raises(examples["flights_replay"].Failure, match="the query delays failed"):
        flights_view.watch(
            Console(file=io.StringIO()), view(examples, Lags()), lambda: False, lambda: "the query delays failed"
        )


class Clock:
    """A clock that the sleeps of a program move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("slow", ["results", "micro-batches", "start"])
def test_slow_run_ends_only_without_progress(
    examples: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    """A step each 200 s, for an hour; then nothing."""
    flights_view, clock = examples["flights_view"], Clock()
    monkeypatch.setattr(flights_view, "time", clock)
    shown = view(examples, Lags(), count=1)

    def done() -> bool:
        steps = int(min(clock.now_s, 3600) // 200)
        if slow == "results":
            shown._results.delays |= {("XX", str(number)): {} for number in range(steps + 1)}
        elif slow == "micro-batches":
            status = shown._statuses.latest["delays"]
            shown._statuses.latest["delays"] = replace(status, batches=steps, records=0)
        else:
            run = Run("delays", "delays", str(steps // 2))
            shown._statuses.latest = {"delays": Status(run, busy_since_ms=steps % 2)}
        return False

    with pytest.raises(examples["flights_replay"].Failure, match=r"no progress for 240 s: .*\n.*end them") as raised:
        flights_view.watch(Console(file=io.StringIO()), shown, done, lambda: None)
    assert 3600 + 240 <= clock.now_s < 3600 + 250
    assert "results" in str(raised.value)


def test_year_waits_for_the_first_results_after_a_week(examples: dict[str, ModuleType]) -> None:
    sent: list[int] = []

    class Producer:
        def __init__(self, **_settings: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_exception: object) -> None: ...

        def send(self, _topic: str, value: bytes, **_options: object) -> None:
            sent.append(int(value))

        def flush(self, _timeout_s: float) -> int:
            return 0

    class Warmed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.sent_before = list(sent)
            return True

    module = examples["flights_replay"]
    module.Producer = Producer
    warmed = Warmed()
    year = [[("flights", b"", str(day).encode(), day)] for day in range(20)]
    module.Replay("nowhere:1", year, 0.0, warmed).run()
    assert warmed.sent_before == list(range(7))
    assert sent == list(range(20))
