"""Debezium's embedded engine in a JVM (tests/peers/debezium/DebeziumRun.java), as an oracle for change data capture."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from .cache import DEBEZIUM, DEBEZIUM_PROGRAMS
from .kafka import FULL_SPEED, QUICK_START, STOP_TIMEOUT_S

QUIET_S = 3.0
START_S = 60.0


class Event(NamedTuple):
    """An event: JSON with schemas, parsed; None for no key or value."""

    topic: str
    key: Any
    value: Any


def java(*arguments: str, heap: str = "512m", quick: bool = True) -> list[str]:
    """The command line that runs DebeziumRun."""
    path = f"{DEBEZIUM_PROGRAMS}:{DEBEZIUM}/*"
    options = QUICK_START if quick else FULL_SPEED
    return ["java", f"-Xmx{heap}", *options, "-Djava.awt.headless=true", "-cp", path, *arguments]


class DebeziumEngine:
    """Debezium with a configuration, until the end of the `with` block."""

    def __init__(self, directory: Path, properties: Mapping[str, str]) -> None:
        self._file, self._log = directory / "debezium.properties", directory / "debezium.log"
        given = {
            "name": "oracle",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "offset.flush.interval.ms": "500",
            **properties,
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                java("DebeziumRun", str(self._file)), stdin=pipe, stdout=pipe, stderr=log, text=True
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_pump, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._reader.join(STOP_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def take(self, count: int) -> list[Event]:
        """Return this number of events, and others that follow within a few seconds. Raises RuntimeError."""
        found: list[Event] = []
        deadline = time.monotonic() + START_S
        while True:
            wait_s = QUIET_S if len(found) >= count else max(0.0, deadline - time.monotonic())
            try:
                line = self._lines.get(timeout=wait_s)
            except queue.Empty:
                if len(found) >= count:
                    return found
                end = self._log.read_text()[-2000:]
                raise RuntimeError(f"Debezium sent {len(found)} events of {count}:\n{end}") from None
            if line.count("\t") == 2:  # others are log lines; JSON has no tab
                topic, key, value = line.rstrip("\n").split("\t")
                found.append(Event(topic, json.loads(key), json.loads(value)))


def _pump(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
