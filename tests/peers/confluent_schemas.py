"""Confluent's Java classes for schemas in one JVM, as an oracle (tests/peers/confluent/SchemaOracle.java).

`SchemaOracle` is a context manager. `ask` takes questions as the Java program documents them, thousands at a time.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import IO, Any, Self

from .cache import CONFLUENT, CONFLUENT_PROGRAMS
from .kafka import QUICK_START, STOP_TIMEOUT_S


def java(main: str, *arguments: str, heap: str = "512m") -> list[str]:
    """The command line that runs a class of tests/peers/confluent with Confluent's jars."""
    path = f"{CONFLUENT_PROGRAMS}:{CONFLUENT}/*"
    return ["java", f"-Xmx{heap}", *QUICK_START, "-Djava.awt.headless=true", "-cp", path, main, *arguments]


class SchemaOracle:
    """A JVM that answers questions about schemas until the end of the `with` block."""

    def __init__(self, timeout_s: float = 120.0) -> None:
        """Waits at most `timeout_s` seconds for the answers of one call of `ask`."""
        self._timeout_s = timeout_s
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            java("SchemaOracle"), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True)
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
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def ask(self, questions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The answers of questions in order. Raises TimeoutError, or RuntimeError if the JVM ended."""
        lines = [json.dumps(question) + "\n" for question in questions]
        assert self._process.stdin is not None
        self._process.stdin.write("".join(lines))
        self._process.stdin.flush()
        deadline = time.monotonic() + self._timeout_s
        return [self._next(deadline) for _ in lines]

    def _next(self, deadline: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError(f"Confluent's classes did not answer within {self._timeout_s} s") from None
        if not line:
            raise RuntimeError("the JVM with Confluent's classes ended")
        found: dict[str, Any] = json.loads(line)
        return found


def _pump(lines: IO[str], answers: queue.Queue[str]) -> None:
    for line in lines:
        answers.put(line)
    answers.put("")
