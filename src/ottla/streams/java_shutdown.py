"""Delays the end of Java until the running micro-batches have ended.

A signal can reach Java: `spark-submit` is Java itself, and systemd signals all processes of a service. Then Java
runs its shutdown hooks, and that of Spark stops all queries. The hook of this module runs before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.streams")

LONGEST_S: Final = 90
"""More than the end of a run takes."""
_PRIORITY: Final = 100
"""Hadoop runs hooks with a higher priority first. That of Spark has 40."""


@contextmanager
def delayed(spark: SparkSession, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when Java begins to end, and let it wait for the end of the block."""
    ended = threading.Event()
    jvm: Any = spark._jvm  # noqa: SLF001 - as pyspark itself does
    start_callbacks: Any = ensure_callback_server_started
    start_callbacks(SparkContext._gateway)  # noqa: SLF001
    hook = jvm.java.lang.Thread(_Hook(stop, ended))
    hooks = jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    hooks.addShutdownHook(hook, _PRIORITY, LONGEST_S, jvm.java.util.concurrent.TimeUnit.SECONDS)
    try:
        yield
    finally:
        ended.set()
        with suppress(Py4JError, OSError):  # Java ends, or has ended
            hooks.removeShutdownHook(hook)


class _Hook:
    """A Runnable of Java, by py4j's convention."""

    class Java:
        """The name of the interface."""

        implements = ["java.lang.Runnable"]

    def __init__(self, stop: threading.Event, ended: threading.Event) -> None:
        self._stop = stop
        self._ended = ended

    def run(self) -> None:
        """Called by Java, in a thread of its own."""
        if not self._stop.is_set():
            logger.info("Stopping after the running batches: Java ends")
            self._stop.set()
        self._ended.wait(LONGEST_S)
