"""Commands of `cli_*.txt`: the `ottla` command and a broker, both in this process.

ottla WORD...                       run it; `!` marks the lines of standard error, `exit N` a code that is not 0
sorted ottla WORD...                the same, with the lines in sorted order: partitions are read in any order
write TOPIC-PARTITION [KEY:]VALUE... [header=VALUE]    append records, a second apart, the first on 2023-11-14 22:13:20
file NAME LINE...    write a file with these lines, in which backslashes begin escapes
open ID TOPIC        write a record to partition 0 in a transaction that stays open
hang TOPIC           write a record to partition 0 in a transaction that no coordinator knows

Words are quoted as in a shell. ADDRESS is the broker's address, ID a random id, MOMENT the current time, HERE the
current directory, and `.` an empty line.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.cli.main import main
from ottla.clients import Producer
from ottla.testing import ThreadBroker
from tests.open_transactions import hang, open_transaction

FIRST_MS = 1_700_000_000_000
SECOND_MS = 1000
CHANGING = (
    (r"127\.0\.0\.1:(?!1\b)\d+", "ADDRESS"),
    (r"\b(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{22}\b", "ID"),
    (r"acknowledged in .*? (ms|s)( \([\d,]+/s\))?(?=[:;]|$)", "acknowledged in TIME"),
    (r"20(?!23)\d\d-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "MOMENT"),
)


class CliScenario:
    """Runs the commands of one scenario."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The default of Kafka, which commands show: brokers of tests keep all records.
        self._broker = ThreadBroker({"log.retention.hours": 168}, directory=str(directory / "broker"))
        self._broker.start()
        self._written = 0
        self._producers: list[Producer] = []

    def close(self) -> None:
        for producer in self._producers:
            producer.close(1)
        self._broker.stop()

    def run(self, verb: str, arguments: list[str], options: Mapping[str, str]) -> list[str]:
        if verb == "open":
            self._producers.append(open_transaction(self._broker.bootstrap, *arguments))
            return []
        if verb == "hang":
            hang(self._broker.bootstrap, *arguments)
            return []
        if verb != "write":
            raise ValueError(f"unknown command {verb}: it must be ottla, sorted, write, file, open or hang")
        topic, _, partition = arguments[0].rpartition("-")
        headers = {name: text.encode() for name, text in options.items()}
        with Producer(bootstrap_servers=self._broker.bootstrap) as producer:
            for record in arguments[1:]:
                key, colon, value = record.rpartition(":")
                timestamp_ms = FIRST_MS + self._written * SECOND_MS
                producer.send(
                    topic, value.encode(), key.encode() if colon else None,
                    partition=int(partition), timestamp_ms=timestamp_ms, headers=headers,
                ).result(10)  # fmt: skip
                self._written += 1
        return []

    def write_file(self, command: str) -> list[str]:
        """Write a file with the lines that this command names."""
        _, name, *lines = shlex.split(command)
        text = "".join(f"{line}\n" for line in lines)
        (self._directory / name).write_bytes(text.encode().decode("unicode_escape").encode("latin-1"))
        return []

    def run_words(self, line: str) -> list[str]:
        """Run `ottla` with the words of this line; returns its output."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with _environment(self._directory, self._broker.bootstrap), _logging(), streams[0], streams[1]:
            code = main(shlex.split(line)[1:])
        lines = [*_lines(out), *(f"! {each}" for each in _lines(err))]
        return [self._steady(each) for each in lines] + ([f"exit {code}"] if code else [])

    def _steady(self, line: str) -> str:
        line = line.replace(str(self._directory), "HERE")
        for pattern, name in CHANGING:
            line = re.sub(pattern, name, line)
        return line.rstrip() or "."


def _lines(stream: io.TextIOWrapper) -> list[str]:
    stream.seek(0)
    return stream.read().splitlines()


@contextlib.contextmanager
def _logging() -> Iterator[None]:
    """Give the command a fresh logging, and hide the broker's log, which a command in its own process lacks."""
    loggers = logging.getLogger(), logging.getLogger("ottla")
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers.clear()  # a handler of an earlier command in this process may write to a closed stream
        logger.setLevel(logging.WARNING if logger.parent is None else logging.NOTSET)
    packages = ("broker", "cluster", "coordination", "coordinators", "partitions")
    brokers = [logging.getLogger(f"ottla.{package}") for package in packages]
    silent = logging.NullHandler()  # without a handler, warnings would be written to stderr
    for logger in brokers:
        logger.propagate = False
        logger.addHandler(silent)
    try:
        yield
    finally:
        for logger in brokers:
            logger.propagate = True
            logger.removeHandler(silent)
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)


@contextlib.contextmanager
def _environment(directory: Path, bootstrap: str) -> Iterator[None]:
    """Remove the settings of this machine."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith(("OTTLA_", "XDG_"))]:
        del os.environ[name]
    os.environ |= {"OTTLA_BOOTSTRAP": bootstrap, "HOME": str(directory), "COLUMNS": "100", "TZ": "UTC"}
    try:
        time.tzset()
        with contextlib.chdir(directory):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()
