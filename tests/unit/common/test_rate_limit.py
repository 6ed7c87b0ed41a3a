"""A log line that can be caused repeatedly is limited, and the omitted lines are counted."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common import rate_limit
from ottla.common.rate_limit import RateLimitedLog


class Lines(logging.Handler):
    """Collects the lines of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


class Time:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def limited(monkeypatch: pytest.MonkeyPatch, lines: int, period_s: float) -> tuple[RateLimitedLog, Lines, Time]:
    logger = logging.Logger("limited")
    handler = Lines()
    logger.addHandler(handler)
    time = Time()
    monkeypatch.setattr(rate_limit, "time", time)
    return RateLimitedLog(logger, lines, period_s), handler, time


def test_lines_above_the_limit_are_counted_in_the_first_line_of_the_next_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, handler, time = limited(monkeypatch, 2, 1.0)
    for number in range(5):
        log.info("client %d", number)
    assert handler.lines == [(logging.INFO, "client 0"), (logging.INFO, "client 1")]
    time.now += 0.999
    log.warning("client %d", 5)
    assert len(handler.lines) == 2
    time.now += 0.001
    log.warning("client %d", 6)
    log.info("client %d", 7)
    assert handler.lines[2:] == [
        (logging.WARNING, "client 6 (4 similar lines were omitted)"),
        (logging.INFO, "client 7"),
    ]


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 4))
def test_each_period_has_at_most_the_limit_and_no_line_is_lost(pauses: list[float], most: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        log, handler, time = limited(monkeypatch, most, 1.0)
        logged_at = []
        for pause in pauses:
            time.now += pause
            before = len(handler.lines)
            log.info("line")
            logged_at += [time.now] * (len(handler.lines) - before)
        # A period begins with a line, so any `most` + 1 lines span at least one period.
        starts = zip(logged_at, logged_at[most:], strict=False)
        assert sum(last - first < 1.0 for first, last in starts) <= len(logged_at) // 2
        counted = sum(int(text.split("(")[1].split()[0]) for _, text in handler.lines if "omitted" in text)
        assert len(handler.lines) + counted <= len(pauses)
        time.now += 1.0
        log.info("last")
        counted = sum(int(text.split("(")[1].split()[0]) for _, text in handler.lines if "omitted" in text)
        assert len(handler.lines) + counted == len(pauses) + 1
