"""The progress line: its contents, its width, and the cases without one."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.common.failure import Failure
from ottla.tools import progress
from ottla.tools.inputs import Inputs
from ottla.tools.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error by a terminal on which progress is drawn immediately."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(progress, "_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    stream = Terminal()
    # Replaced only for the module: pytest sets the streams of `sys` again before the body of the test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, stdout=sys.stdout))
    return stream


def last_line(terminal: Terminal) -> str:
    return terminal.getvalue().split("\r")[-1].removesuffix("\x1b[K")


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_line_fits_the_terminal(columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    now = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    bar = Progress("records", total=100_000_000, shown=True)
    for _ in range(100):
        bar.advance(123_456, 12_345_600 << 16)
    line = last_line(terminal)
    assert len(line) < columns - 1
    assert "%" in line
    assert "━" * 8 in line
    assert ("records" in line) == (columns >= 80)
    assert (" left" in line) == (columns >= 80)
    assert ("GiB/s" in line) == (columns == 120)


def test_known_total_shows_percentage_count_rate_and_remaining_time(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    now = iter([100.0, 110.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    bar = Progress("records", total=4_000, shown=True)
    bar.advance(1_000, 10 << 20)
    shown = r"━{30}  +25%  1,000 of 4,000 records  30 s left  100/s  10.0 MiB  1.0 MiB/s"
    assert re.fullmatch(shown, last_line(terminal))


def test_unknown_total_shows_only_count_and_rates(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 102.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    bar = Progress("records", shown=True)
    bar.advance(1_000, 2 << 20)
    assert last_line(terminal) == "1,000 records  500/s  2.0 MiB  1.0 MiB/s"


def test_percentage_may_have_another_unit_than_the_items(terminal: Terminal) -> None:
    bar = Progress("records", shown=True)
    bar.expect(1_000, lambda: 500)
    bar.advance(3)
    assert " 50%  3 records" in last_line(terminal)


def test_bytes_are_shown_as_sizes(terminal: Terminal) -> None:
    bar = Progress("B", total=4 << 20, shown=True)
    bar.advance(1 << 20)
    assert " 25%  1.0 MiB of 4.0 MiB" in last_line(terminal)


def test_line_is_removed_before_other_text(terminal: Terminal) -> None:
    bar = Progress("records", shown=True)
    with bar.cleared():
        bar.advance()
        bar.say("ottla: line 7: not JSON")
        bar.advance()
    assert re.search(r"records.*\x1b\[K\r\x1b\[Kottla: line 7: not JSON\n\r2 records", terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K")
    size = len(terminal.getvalue())
    bar.clear()
    assert len(terminal.getvalue()) == size


@pytest.mark.parametrize("why", ["not a terminal", "dumb terminal", "disabled"])
def test_progress_is_not_drawn(why: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "not a terminal":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif why == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    bar = Progress("records", total=10, shown=why != "disabled")
    bar.advance(5)
    bar.clear()
    assert terminal.getvalue() == ""


def test_inputs_count_the_bytes_that_were_read(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x" * 100_000)
    inputs = Inputs([str(path) for path in paths])
    assert (inputs.total(), inputs.reached()) == (200_000, 0)
    with inputs.open(str(paths[0])) as stream:
        stream.read()
    with inputs.open(str(paths[1])) as stream:
        stream.readline(10)
        assert 100_010 <= inputs.reached() <= 200_000
    assert Inputs(["/dev/null"]).total() is None


@pytest.mark.parametrize(("name", "why"), [("none", "No such file or directory"), (".", "Is a directory")])
def test_input_that_cannot_be_read_is_an_error_with_the_reason(name: str, why: str, tmp_path: Path) -> None:
    inputs = Inputs([str(tmp_path / name)])
    with pytest.raises(Failure, match=f"cannot be read: {why}") as caught:
        inputs.check()
    assert caught.value.exit_code == 2
