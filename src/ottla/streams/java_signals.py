"""Lets signals to Java end a run as signals to the driver do, and without Java's traces.

`spark-submit` is Java, and systemd signals all processes of a service. By default SIGTERM and SIGINT end Java, and its
shutdown hooks stop all queries in their micro-batches. A task that fails meanwhile is never reported, so a hook could
not wait for the end of a micro-batch either.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.spark.internals import java
from ottla.spark.internals.names import PROXIES

logger = logging.getLogger("ottla.streams")

_SIGNALS: Final = ("TERM", "INT", "HUP")
"""Of them, Java ignores those that it ignored at its start, such as INT if pyspark started it."""


@contextmanager
def handled(stop: threading.Event) -> Iterator[None]:
    """Set `stop` when Java receives a signal, until the end of the block."""

    def handle(name: str) -> None:
        if not stop.is_set():
            logger.info("Stopping after the running batches: signal to Java=SIG%s", name)
            stop.set()

    with java.handled_signals(_SIGNALS, handle):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Let Spark log nothing in the block: a stop interrupts its threads, and each of them would log a trace."""
    proxies = logging.getLogger(PROXIES)
    level, before = java.set_log_level("OFF"), proxies.level
    proxies.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        proxies.setLevel(before)
        if level is not None:
            java.set_log_level(level)
