"""The two sides of the races of streams as processes: a warm one that takes commands, or one for a single program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.peers.__main__ import fetch_streams
from tests.peers.cache import STREAMS

from benchmarks.process_times import ProcessTimes, processes, session_of
from ottla.spark import class_archive

OTTLA, PEER = "ottla", "Kafka Streams"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once_v2", "at_least_once"
STOP_S = 90.0
THREADS = 2
BYTECODE = STREAMS.parent / "bytecode"
PROGRAM = Path(__file__).with_name("streams_program.py")
OTTLA_STREAM = [sys.executable, "-m", "ottla.cli.main", "stream"]


@dataclass(frozen=True)
class Program:
    """The program of a contender; `name` is the pipeline's, or the application id."""

    name: str
    kind: str
    source: str
    target: str
    guarantee: str = EXACTLY_ONCE
    most: int = 0
    """The largest number of records of a micro-batch, or 0; only Ottla has it."""
    latency_ms: int | None = None
    """How long a record may wait for its micro-batch; only Ottla has it."""

    def words(self) -> str:
        """The arguments of the command `start`."""
        latency = "" if self.latency_ms is None else f" {self.latency_ms}"
        return f"{self.name} {self.kind} {self.source} {self.target} {self.guarantee} {self.most}{latency}"


class Contender:
    """A process and all that it starts."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True, env=_installed() | (environment or {}),
            )  # fmt: skip
        self._choose = session_of(self._process.pid)
        self._processes = ProcessTimes(self._choose)
        self._processes.watch(lambda: self.is_running)

    def start(self, program: Program) -> None:
        """Start a program, and return when it has been started."""
        self._ask(f"start {program.words()}", "started")

    def stop(self) -> list[dict[str, Any]]:
        """Stop the programs. The reports of Spark's last micro-batches; Kafka Streams has none."""
        told = json.loads(self._ask("stop", "stopped").partition(" ")[2])
        return told if isinstance(told, list) else []

    def send(self, program: Program) -> None:
        """As `start`, without waiting for an answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"start {program.words()}\n")
        self._process.stdin.flush()

    def _ask(self, command: str, answer: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line.startswith(answer):
            raise RuntimeError(f"{command!r} was answered with {line!r}:\n{self.tail()}")
        return line

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop all its processes during the block, which must be short."""
        pids = [row.pid for row in self._choose(processes())]
        try:
            _signal(pids, signal.SIGSTOP)
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def cpu_seconds(self) -> float:
        """User and system time so far of all processes of the session, also of those that have ended."""
        return sum(self.cpu_parts().values())

    def cpu_parts(self) -> dict[str, float]:
        """The same by part."""
        return self._processes.seconds()

    def wait_for_end(self) -> None:
        """Until it has ended by itself. Raises RuntimeError if it failed."""
        if self._process.wait(STOP_S):
            raise RuntimeError(f"exit code {self._process.returncode}:\n{self.tail()}")

    def kill(self) -> None:
        """SIGKILL to the driver: the process and the JVM that it started. Python's workers end by themselves."""
        if not self.is_running:
            return
        _signal([*_children(self._process.pid), self._process.pid], signal.SIGKILL)
        self._process.wait(STOP_S)

    def end(self) -> None:
        """End of commands, and SIGKILL to the whole session if it does not end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _installed() -> dict[str, str]:
    """The environment, in which Python stores and finds its bytecode, as pip installs it."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BYTECODE)}


@cache
def _prepare() -> None:
    """Store the classes of Spark, if they are not."""
    place = class_archive.place()
    if place is not None and not place.is_file():
        subprocess.run([*OTTLA_STREAM, "prepare"], env=_installed(), check=True, stdout=subprocess.DEVNULL)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def open_contender(who: str, bootstrap: str, directory: Path) -> Iterator[Contender]:
    """A process that waits for commands."""
    home = directory / f"{who.replace(' ', '-')}-{time.monotonic_ns()}"
    home.mkdir(parents=True)
    contender = Contender(_command(who, bootstrap, home / "state"), home / "log")
    try:
        yield contender
    finally:
        contender.end()


def _command(who: str, bootstrap: str, state: Path) -> list[str]:
    if who == OTTLA:
        return [sys.executable, "-m", "benchmarks.streams_program", bootstrap, str(state)]
    fetch_streams()
    jvm = ["-Xmx2g", f"-Dlog4j2.configurationFile={STREAMS / 'log4j2.yaml'}", "-cp", f"{STREAMS}/*"]
    return ["java", *jvm, "StreamsRaces", bootstrap, str(state), str(THREADS)]


def start_alone(who: str, program: Program, bootstrap: str, home: Path, *, once: bool = False) -> Contender:
    """A process for one program, as a person starts it; the same `home` continues where an earlier one ended."""
    home.mkdir(parents=True, exist_ok=True)
    if who == PEER:
        contender = Contender(_command(who, bootstrap, home / "state"), home / "log")
        contender.send(program)
        return contender
    _prepare()
    command = [*OTTLA_STREAM, "run", str(PROGRAM), "--bootstrap-server", bootstrap]
    command += ["--checkpoints", str(home / "state"), "--master", "local[2]", *(["--once"] if once else [])]
    return Contender(command, home / "log", {"OTTLA_RACE": program.words()})
