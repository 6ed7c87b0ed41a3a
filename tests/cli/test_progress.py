"""Long commands show their progress at a terminal, and report their results up to Ctrl-C."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import bench
from ottla.tools.dump import printer as dump_printer
from tests.clients.support import unique
from tests.conftest import RunningBroker

from .conftest import Run

# Draws every step, so that short commands show progress, too.
NOW = "import ottla.tools.progress as p, ottla.cli.main as m, sys; p._FIRST_S = p._EVERY_S = 0.0; sys.exit(m.main())"
DEADLINE_S = 30


class Screen:
    """A pseudo terminal for the standard error of a process."""

    def __init__(self) -> None:
        self._master, self._slave = pty.openpty()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def start(self, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
        return subprocess.Popen([sys.executable, "-c", NOW, *words], stderr=self._slave, env=environment, **streams)

    def read(self, process: subprocess.Popen[bytes], until: str | None = None) -> None:
        """Read the terminal until a text appears or, without `until`, the process ends."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None
            if select.select([self._master], [], [], 0.05)[0]:
                self.shown += self._decoder.decode(os.read(self._master, 65536))
            elif has_ended:
                return
            if until is not None and re.search(until, self.shown):
                return
        process.kill()
        pytest.fail(f"{until or 'the end'} did not come: {self.shown[-500:]!r}")

    def close(self) -> None:
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def screen(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
    opened = Screen()
    yield opened
    opened.close()


def test_produce_of_files_shows_the_percentage(screen: Screen, topic: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("a line of text\n" * 20_000)
    process = screen.start("produce", topic, str(tmp_path / "a"), str(tmp_path / "b"), stdin=subprocess.DEVNULL)
    screen.read(process)
    assert process.returncode == 0
    assert re.search(r"━+ +\d+%  [\d,]+ records  .* left  [\d,]+/s  [\d.]+ \w+B  ", screen.shown), screen.shown[:500]
    assert "100%" in screen.shown
    assert "40,000 records acknowledged" in screen.shown.rpartition("\x1b[K")[2]


def test_produce_of_a_pipe_shows_only_a_count(screen: Screen, topic: str) -> None:
    process = screen.start("produce", topic, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    screen.read(process, until=r"\r[12] records ")
    process.stdin.close()
    screen.read(process)
    assert process.returncode == 0
    assert "%" not in screen.shown
    assert "2 records acknowledged" in screen.shown


@pytest.mark.parametrize(("words", "has_end"), [(["-e"], True), (["-e", "--json"], True), ([], False)])
def test_consume_into_a_file_shows_progress(
    words: list[str], has_end: bool, screen: Screen, topic: str, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = screen.start("consume", topic, *words, stdout=out)
        screen.read(process, until=r"\b60 records")
        if not has_end:
            process.send_signal(signal.SIGINT)
        screen.read(process)
    assert process.returncode == (0 if has_end else 130)
    assert ("100%" in screen.shown) == has_end
    assert screen.shown.endswith("\r\x1b[K")
    assert (tmp_path / "out").read_bytes().count(b"\n") == 60


@pytest.mark.parametrize("words", [["produce", "TOPIC"], ["consume", "TOPIC", "-e"], ["bench", "consume", "TOPIC"]])
def test_no_progress_if_standard_error_is_not_a_terminal(
    words: list[str], broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "in"
    file.write_text("line\n" * 1000)
    files = [str(file)] if words[0] == "produce" else []
    command = [sys.executable, "-c", NOW, *(topic if word == "TOPIC" else word for word in words), *files]
    ended = subprocess.run(
        [*command, "-b", broker.bootstrap], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert "\r" not in ended.stdout + ended.stderr


def test_no_progress_if_records_go_to_a_pipe(screen: Screen, topic: str) -> None:
    process = screen.start("consume", topic, "-e", stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        lines = out.read().splitlines()
    screen.read(process)
    assert (len(lines), screen.shown) == (60, "")


def test_verify_shows_progress_and_ctrl_c_reports_the_checked_files(
    screen: Screen, broker: RunningBroker, topic: str, ours: Any, monkeypatch: pytest.MonkeyPatch, plain: Run
) -> None:
    (directory,) = {row.path for rows in ours.describe_log_dirs().values() for row in rows}
    path = f"{directory}/{topic}-0"
    process = screen.start("log", "dump", path, "--verify", stdout=subprocess.DEVNULL)
    screen.read(process)
    assert process.returncode == 0
    assert re.search(r"━ +\d+%  [\d.]+ \w*B of [\d.]+ \w*B", screen.shown), screen.shown

    asked = []

    def interrupted(found: Any, *_: object) -> Iterator[Any]:
        asked.append(found)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return iter(())

    monkeypatch.setattr(dump_printer, "dump_file", interrupted)
    answer = plain("log", "dump", path, "--verify")
    assert answer.code == 130
    assert re.fullmatch(r"1 file, nothing damaged \(interrupted: \d+ files? not checked\)\n", answer.out)


# -- bench and Ctrl-C -------------------------------------------------------------------------------------------


def test_interrupted_bench_produce_reports_its_figures(screen: Screen, ottla: Run) -> None:
    topic = unique("bench")
    process = screen.start("bench", "produce", topic, "--create", "--records", "1000000000", stdout=subprocess.PIPE)
    screen.read(process, until=r"0%  [\d,]{6,} of 1,000,000,000 records")
    process.send_signal(signal.SIGINT)
    screen.read(process)
    assert process.stdout is not None
    with process.stdout as out:
        row = dict(re.split(r" {2,}", line, maxsplit=1) for line in out.read().decode().splitlines())
    assert (process.returncode, row["interrupted"]) == (130, "yes")
    (told,) = ottla("topic", "describe", topic, "--json").objects
    # One more is the warm-up; the interrupt may come between sending a record and counting it.
    assert told["records"] - int(row["records"].replace(",", "")) in (1, 2)
    assert {"records/s", "MB/s", "latency p99"} <= set(row)
    assert ottla("topic", "delete", topic).code == 0


def test_interrupted_bench_consume_reports_its_figures(ottla: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = iter([(10, 200), (20, 400)])

    def poll() -> tuple[int, int]:
        try:
            return next(polls)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(bench, "record_poll", lambda _: poll)
    done = ottla("bench", "consume", topic, "--json")
    assert done.code == 130
    assert [(row["records"], row["bytes"], row["interrupted"]) for row in done.objects] == [(30, 600, True)]


def test_interrupted_bench_e2e_reports_its_figures(ottla: Run, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = bench.await_value

    def interrupted(consumer: Any, value: bytes) -> None:
        read(consumer, value)
        if value.startswith(b"00000002"):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(bench, "await_value", interrupted)
    done = ottla("bench", "e2e", topic, "--json")
    assert done.code == 130
    (row,) = done.objects
    assert (row["records"], row["interrupted"], "p99_ms" in row) == (2, True, True)


def test_second_interrupt_ends_the_wait_for_acknowledgements(
    ottla: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.clients import Producer

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    flush = Producer.flush

    def interrupted_once(producer: Producer, *timeout_s: float) -> None:
        monkeypatch.setattr(Producer, "flush", flush)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "send_all", interrupted)
    monkeypatch.setattr(Producer, "flush", interrupted_once)
    done = ottla("bench", "produce", topic, "--json")
    assert (done.code, done.objects[0]["interrupted"]) == (130, True)
