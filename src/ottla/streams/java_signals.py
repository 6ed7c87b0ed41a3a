"""Lets signals to Java end a run as signals to the driver do, and without traces of Java.

`spark-submit` is Java, and systemd signals all processes of a service. By default SIGTERM and SIGINT end Java, and its
shutdown hooks stop all queries in their micro-batches. A task that fails meanwhile is never reported, so a hook could
not wait for the end of a micro-batch either.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.streams")

_PROXIES: Final = logging.getLogger("py4j.clientserver")
"""It logs the traceback of foreachBatch before Spark receives it."""
_SIGNALS: Final = ("TERM", "INT", "HUP")
"""Of them, Java ignores those that it ignored at its start, such as INT if pyspark started it."""


@contextmanager
def handled(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when Java receives a signal, until the end of the block."""
    signals: Any = spark._jvm.sun.misc  # type: ignore[union-attr]  # noqa: SLF001 - as pyspark itself does
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(SparkContext._gateway)  # noqa: SLF001
    handler = _Handler(stop)
    before: list[tuple[Any, Any]] = []
    for name in _SIGNALS:
        with suppress(Py4JJavaError):  # the user has started Java with -Xrs
            number = signals.Signal(name)
            before.append((number, signals.Signal.handle(number, handler)))
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # Java has ended
            for number, previous in before:
                signals.Signal.handle(number, previous)


@contextmanager
def quiet(spark: SparkSession) -> Iterator[None]:
    """Let Spark log nothing in the block: a stop interrupts its threads, and each of them would log a trace."""
    level, before = silence(spark), _PROXIES.level
    _PROXIES.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _PROXIES.setLevel(before)
        if level is not None:
            _set_level(spark, level)


def silence(spark: SparkSession) -> Any:
    """Let Spark log nothing any more. Returns the level before, an object of Java; None if Java has ended."""
    return _set_level(spark, None)


def _set_level(spark: SparkSession, level: Any) -> Any:
    """Set the level of Spark's log, None for no log; returns the previous one, or None if Java has ended.

    Spark's own `setLogLevel` would also show what its shells hide.
    """
    try:
        logs: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
        before = logs.LogManager.getRootLogger().getLevel()
        logs.core.config.Configurator.setRootLevel(logs.Level.OFF if level is None else level)
    except (Py4JError, OSError):
        return None
    return before


class _Handler:
    """A SignalHandler of Java, by py4j's convention."""

    class Java:
        """The name of the interface."""

        implements = ["sun.misc.SignalHandler"]

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def handle(self, received: Any) -> None:
        """Called by Java, in a thread of its own."""
        if not self._stop.is_set():
            logger.info("Stopping after the running batches: signal of Java=SIG%s", received.getName())
            self._stop.set()
