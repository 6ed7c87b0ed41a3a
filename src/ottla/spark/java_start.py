"""Starts Java for a session, and lets both cores of a small machine work meanwhile.

The start of Java, of Spark and of the first query is one long chain of work. Two parts need not wait for it:
Python's imports for Spark, and static fields of Spark's classes, which take Java up to half a second to compute.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from ottla.spark import collectors
from ottla.spark.internals import java
from ottla.spark.internals.names import SESSION_CLASSES, VALUE_MODULES

logger = logging.getLogger(__name__)

_LAUNCHER: Final = "-XX:TieredStopAtLevel=1"
_LAUNCHER_COLLECTOR: Final = "-XX:+UseSerialGC"
"""For the Java that prints the command of Spark's Java, and ends after a fifth of a second."""
_PROCESS: Final = {"process_group": 0}
"""A signal to the driver's process group (Ctrl-C, `timeout`) would end Java in the running micro-batch.

Java ends with its driver in any case, at the end of its standard input.
"""


def start(options: Mapping[str, object], imports: Sequence[str]) -> None:
    """Start Java with these Spark settings, unless it runs, and import modules meanwhile.

    Blocks until both are done. Raises what an import raises.
    """
    import pyspark.sql  # before the thread: two threads that import one package would both see half of it

    if java.is_connected():
        return
    conf = pyspark.SparkConf(loadDefaults=False).setAll([(name, str(value)) for name, value in options.items()])
    with ThreadPoolExecutor(1, "ottla-imports") as thread:
        imported = thread.submit(lambda: [importlib.import_module(module) for module in (*VALUE_MODULES, *imports)])
        with _launcher_settings():
            java.launch(conf, _PROCESS)
    imported.result()
    initialize(SESSION_CLASSES)


def initialize(classes: tuple[str, ...]) -> None:
    """Let Java compute the static fields of classes in a thread of its own. A class that does not exist is ignored."""
    threading.Thread(target=_initialize, args=(classes,), name="ottla-classes", daemon=True).start()


def _initialize(classes: tuple[str, ...]) -> None:
    from ottla.spark.internals.errors import JAVA_ERRORS

    try:
        java.load_classes(classes)
    except JAVA_ERRORS as error:  # another Spark version, or the end of the program
        logger.debug("Not initialized ahead: %s", error)


@contextmanager
def _launcher_settings() -> Iterator[None]:
    ours = {
        "SPARK_HOME": java.spark_home(),  # else a script starts Python to find it
        "SPARK_LAUNCHER_OPTS": f"{_LAUNCHER} {collectors.for_any_java(_LAUNCHER_COLLECTOR)}".strip(),
    }
    chosen = {name: value for name, value in ours.items() if name not in os.environ}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]
