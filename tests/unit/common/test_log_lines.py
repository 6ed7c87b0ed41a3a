"""The limited log handler: the rate of lines is bounded, and one line reports the dropped ones."""

from __future__ import annotations

import io
import json
import logging
import sys

import pytest

from ottla.common import log_lines
from ottla.common.json_lines import JsonFormatter
from ottla.common.log_lines import BURST_BYTES, BYTES_PER_SECOND, LONGEST_MESSAGE, LimitedHandler, LineFormatter
from ottla.common.style import Style


class Output:
    """A limited handler with a manual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.stream = io.StringIO()
        handler = LimitedHandler(self.stream, lambda: self.now_s)
        handler.setFormatter(LineFormatter(Style(coloured=False)))
        self._handler = handler

    def log(self, message: str, name: str = "ottla.a", level: int = logging.INFO) -> None:
        self._handler.handle(logging.LogRecord(name, level, "", 0, message, None, None))

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_storm_of_lines_is_bounded_and_counted() -> None:
    output = Output()
    for _ in range(2 * BURST_BYTES // 1000):
        output.log("x" * 1000, level=logging.ERROR)
    assert BURST_BYTES * 0.8 < len(output.stream.getvalue()) <= BURST_BYTES
    output.log("another logger", "ottla.b")
    assert output.lines[-1].endswith("another logger")
    before = len(output.lines)
    output.now_s = 3600.0
    output.log("after the storm")
    report, after = output.lines[before:]
    assert " lines: they exceeded " in report
    assert int(report.partition("Dropped ")[2].split()[0]) == 2 * BURST_BYTES // 1000 - (before - 1)
    assert after.endswith("after the storm")


def test_lines_after_a_burst_are_limited_to_the_sustained_rate() -> None:
    output = Output()
    for _ in range(BURST_BYTES // 1000):
        output.log("x" * 1000)
    size = len(output.stream.getvalue())
    for _ in range(1000):
        output.now_s += 0.01
        output.log("x" * 1000)
    assert len(output.stream.getvalue()) - size <= 11 * BYTES_PER_SECOND


def test_debug_lines_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "BURST_BYTES", 1000)
    output = Output()
    for _ in range(100):
        output.log("x" * 1000, level=logging.DEBUG)
    assert len(output.lines) == 100


def test_lines_of_ten_thousand_new_partitions_fit_the_budget() -> None:
    output = Output()
    for i in range(10_000):
        output.log(f"Created log for partition topic-{i} in /var/lib/ottla/data/topic-{i} with properties {{}}")
    assert len(output.lines) == 10_000


def test_long_message_is_cut_and_stays_one_line() -> None:
    output = Output()
    output.log("a\nb\r" + "x" * 40_000)
    (line,) = output.lines
    assert "a\\nb\\rxxx" in line
    assert line.endswith("x... (38006 characters omitted)")
    assert len(line) < LONGEST_MESSAGE + 200


def test_arguments_that_do_not_fit_the_message_raise_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler = LimitedHandler(stream)
    handler.handle(logging.LogRecord("ottla.a", logging.INFO, "", 0, "%d", ("x",), None))
    assert stream.getvalue() == ""
    assert "Logging error" in capsys.readouterr().err


def test_json_line_is_one_object_whatever_the_message_has() -> None:
    formatter = JsonFormatter()
    message = 'a "quoted"\nline  \x1b[31m é' + "x" * LONGEST_MESSAGE
    record = logging.LogRecord("ottla.a", logging.WARNING, "", 0, message, None, None)
    record.created = 1764409980.1239
    line = formatter.format(record)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert found["message"].startswith('a "quoted"\nline  \x1b[31m éxxx')
    assert found["message"].endswith("characters omitted)")
    assert (found["time"], found["level"], found["logger"]) == ("2025-11-29T09:53:00.123Z", "WARNING", "ottla.a")


def test_json_line_has_the_exception() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = logging.LogRecord("ottla.a", logging.ERROR, "", 0, "It %s", ("failed",), sys.exc_info())
    found = json.loads(JsonFormatter().format(record))
    assert (found["message"], found["exception"]) == ("It failed", "ValueError")
    assert found["traceback"].endswith("ValueError: no")
