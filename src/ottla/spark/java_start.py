"""Starts the Java of a session, and lets both cores of a small machine work meanwhile.

The start of Java, of Spark and of the first query is one long chain of work. Two parts need not wait for it: what
Python imports for Spark, and static fields of Spark's classes, which take Java up to half a second to compute.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

from ottla.spark import collectors

logger = logging.getLogger(__name__)

_IMPORTED: Final = ("pyspark.testing.utils", "pyspark.sql.pandas.types")
"""What pyspark imports when it first sends a value to Java, with numpy and pandas."""
_LAUNCHER: Final = "-XX:TieredStopAtLevel=1"
_LAUNCHER_COLLECTOR: Final = "-XX:+UseSerialGC"
"""For the Java that prints the command of Spark's Java, and ends after a fifth of a second."""
_PROCESS: Final = {"process_group": 0}
"""A signal to the driver's process group (Ctrl-C, `timeout`) would end Java in the running micro-batch.

Java ends with its driver in any case, at the end of its standard input.
"""
_SESSION: Final = (
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseLexer",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
)
"""Classes whose static fields each session or query computes, in this order: functions with Scala's reflection, and
the tables of the parser."""
CASES: Final = ("org.apache.spark.sql.catalyst.util.CollationAwareUTF8String",)
"""What `upper`, `lower` and `initcap` need: a table of all characters, which takes more than a second."""


def start(options: Mapping[str, str], imports: Sequence[str]) -> None:
    """Start Java with these settings of Spark, unless it runs, and import modules meanwhile.

    Blocks until both are done. Raises what an import raises.
    """
    import pyspark.sql  # before the thread: two threads that import one package would both see half of it
    from pyspark.java_gateway import launch_gateway

    context: Any = pyspark.SparkContext
    if context._gateway is not None:  # noqa: SLF001 - pyspark has no public name for its connection to Java
        return
    conf = pyspark.SparkConf(loadDefaults=False).setAll(list(options.items()))
    with ThreadPoolExecutor(1, "ottla-imports") as thread:
        imported = thread.submit(lambda: [importlib.import_module(module) for module in (*_IMPORTED, *imports)])
        with _launcher_settings(), _killed_after_an_error():
            gateway = launch_gateway(conf, dict(_PROCESS))  # type: ignore[no-untyped-call]
        context._ensure_initialized(gateway=gateway)  # noqa: SLF001 - as pyspark's own constructor does
    imported.result()
    initialize(_SESSION)


def initialize(classes: tuple[str, ...]) -> None:
    """Let Java compute the static fields of classes in a thread of its own. A class that does not exist is ignored."""
    threading.Thread(target=_initialize, args=(classes,), name="ottla-classes", daemon=True).start()


def is_running() -> bool:
    """Whether Java answers."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm  # noqa: SLF001
    try:
        return jvm.java.lang.System.nanoTime() is not None
    except (Py4JError, OSError):
        return False


def _initialize(classes: tuple[str, ...]) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm  # noqa: SLF001
    try:
        for name in classes:
            jvm.java.lang.Class.forName(name)
    except (Py4JError, OSError) as error:  # another version of Spark, or the end of the program
        logger.debug("Not initialized ahead: %s", error)


@contextmanager
def _killed_after_an_error() -> Iterator[None]:
    """Kill Java if its start is interrupted: it would not find the file of pyspark, and print a trace."""
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    begun: list[subprocess.Popen[bytes]] = []
    before = java_gateway.Popen

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(before(*arguments, **options))
        return begun[-1]

    java_gateway.Popen = begin
    try:
        yield
    except BaseException:
        for process in begun:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        java_gateway.Popen = before


@contextmanager
def _launcher_settings() -> Iterator[None]:
    from pyspark.find_spark_home import _find_spark_home

    ours = {
        "SPARK_HOME": str(_find_spark_home()),  # else a script starts Python to find it
        "SPARK_LAUNCHER_OPTS": f"{_LAUNCHER} {collectors.for_any_java(_LAUNCHER_COLLECTOR)}".strip(),
    }
    chosen = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]
