"""The Java process of the driver: its start, end, signals and log. pyspark is imported when a function is called."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_PROXIES: Final = "py4j.clientserver"
"""The Python logger of calls from Java. It logs the traceback of foreachBatch before Spark receives it."""


def has_context() -> bool:
    """Whether this process has a running SparkContext.

    Uses `SparkContext._active_spark_context` (pyspark 4.2 to 4.3).
    """
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001


def is_connected() -> bool:
    """Whether pyspark has started Java, or was started by it.

    Uses `SparkContext._gateway` (pyspark 4.2 to 4.3).
    """
    from pyspark import SparkContext

    return SparkContext._gateway is not None  # noqa: SLF001


def is_running() -> bool:
    """Whether Java answers.

    Uses `SparkContext._jvm` (pyspark 4.2 to 4.3).
    """
    from ottla.spark.internals.errors import JAVA_ERRORS

    try:
        return _jvm().java.lang.System.nanoTime() is not None
    except JAVA_ERRORS:
        return False


def builder_options(builder: SparkSession.Builder) -> Mapping[str, object]:
    """Return the settings of a builder.

    Uses `SparkSession.Builder._options` (pyspark 4.2 to 4.3).
    """
    return dict(builder._options)  # noqa: SLF001


def spark_home() -> str:
    """Return the directory of Spark's jars and scripts.

    Uses `pyspark.find_spark_home._find_spark_home` (pyspark 4.2 to 4.3).
    """
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def launch(conf: SparkConf, process_options: Mapping[str, Any]) -> None:
    """Start Java with these options of `Popen`, and connect pyspark to it. Kills Java if the start is interrupted.

    Java would not find the file of pyspark otherwise, and print a trace. Uses `pyspark.java_gateway.launch_gateway`,
    its `Popen`, and `SparkContext._ensure_initialized` (pyspark 4.2 to 4.3).
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    begun: list[subprocess.Popen[bytes]] = []
    before = java_gateway.Popen

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        with _deferred_interrupts():
            begun.append(before(*arguments, **options))
        return begun[-1]

    java_gateway.Popen = begin
    try:
        gateway = java_gateway.launch_gateway(conf, dict(process_options))
    except BaseException:
        for process in begun:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        java_gateway.Popen = before
    _context()._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as pyspark's own constructor does


@contextmanager
def _deferred_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block: an interrupted Popen would not return its process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


def process_of(spark: SparkSession) -> subprocess.Popen[bytes]:
    """Return the Java process that pyspark has started for a session.

    Uses `SparkContext._gateway` and its `proc` (pyspark 4.2 to 4.3).
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def load_classes(names: Sequence[str]) -> None:
    """Let Java compute the static fields of classes. Raises an exception of JAVA_ERRORS for a class that is missing.

    Uses `SparkContext._jvm` (pyspark 4.2 to 4.3).
    """
    for name in names:
        _jvm().java.lang.Class.forName(name)


# --- signals and log --------------------------------------------------------------------------------------------------


@contextmanager
def handled_signals(names: Sequence[str], handle: Callable[[str], None]) -> Iterator[None]:
    """Call `handle` with the name of each signal that Java receives, in a thread of its own, until the block ends.

    A signal is skipped if the user has started Java with -Xrs. Uses `SparkContext._jvm` and `_gateway`, and
    `pyspark.java_gateway.ensure_callback_server_started` (pyspark 4.2 to 4.3).
    """
    from ottla.spark.internals.errors import JAVA_ERRORS, JAVA_EXCEPTION

    signals = _jvm().sun.misc
    start_callbacks()
    handler = _SignalHandler(handle)
    before: list[tuple[Any, Any]] = []
    for name in names:
        with suppress(JAVA_EXCEPTION):
            number = signals.Signal(name)
            before.append((number, signals.Signal.handle(number, handler)))
    try:
        yield
    finally:
        with suppress(*JAVA_ERRORS):  # Java has ended
            for number, previous in before:
                signals.Signal.handle(number, previous)


def set_log_level(level: str, name: str | None = None) -> str | None:
    """Set the level of a Java logger, by default of all; returns the previous level, None if Java has ended.

    Spark's own `setLogLevel` would also show what its shells hide. Uses `SparkContext._jvm` (pyspark 4.2 to 4.3).
    """
    from ottla.spark.internals.errors import JAVA_ERRORS

    try:
        logs = _jvm().org.apache.logging.log4j
        logger = logs.LogManager.getRootLogger() if name is None else logs.LogManager.getLogger(name)
        before = str(logger.getLevel().name())
        logs.core.config.Configurator.setLevel(logger.getName(), logs.Level.valueOf(level))
    except JAVA_ERRORS:
        return None
    return before


@contextmanager
def quiet() -> Iterator[None]:
    """Let Spark log nothing in the block: a stop interrupts its threads, and each of them would log a trace.

    Uses `SparkContext._jvm` and py4j's logger (pyspark 4.2 to 4.3).
    """
    proxies = logging.getLogger(_PROXIES)
    level, before = set_log_level("OFF"), proxies.level
    proxies.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        proxies.setLevel(before)
        if level is not None:
            set_log_level(level)


def start_callbacks() -> None:
    """Let Java call Python objects.

    Uses `pyspark.java_gateway.ensure_callback_server_started` and `SparkContext._gateway` (pyspark 4.2 to 4.3).
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    java_gateway.ensure_callback_server_started(_context()._gateway)  # noqa: SLF001


class _SignalHandler:
    class Java:
        implements = ["sun.misc.SignalHandler"]

    def __init__(self, handle: Callable[[str], None]) -> None:
        self._handle = handle

    def handle(self, received: Any) -> None:
        self._handle(str(received.getName()))


def _context() -> Any:
    from pyspark import SparkContext

    return SparkContext


def _jvm() -> Any:
    return _context()._jvm  # noqa: SLF001
