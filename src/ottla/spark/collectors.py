"""Whether the user has chosen a garbage collector for Java: with a second one, Java does not start."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ottla.spark.internals import java

_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_OF_JAVA: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with options for each Java."""
_OF_DRIVER: Final = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS")
_FILES: Final = ("spark-defaults.conf", "java-opts")
"""Spark's files that may have options for the driver's Java."""


def for_any_java(options: str) -> str:
    """Return options that choose a collector; empty if the environment has one for each Java."""
    return "" if _is_chosen(_environment(_OF_JAVA)) else options


def for_driver(options: str) -> str:
    """Return options that choose a collector; empty if the environment or a Spark file has one for the driver."""
    return "" if _is_chosen(_environment((*_OF_JAVA, *_OF_DRIVER))) or _is_chosen(_files()) else options


def _is_chosen(texts: Iterator[str]) -> bool:
    return any(map(_COLLECTOR.search, texts))


def _environment(names: tuple[str, ...]) -> Iterator[str]:
    return (os.environ.get(name, "") for name in names)


def _files() -> Iterator[str]:
    directory = os.environ.get("SPARK_CONF_DIR") or f"{java.spark_home()}/conf"
    for name in _FILES:
        with suppress(OSError, UnicodeDecodeError):
            yield (Path(directory) / name).read_text(encoding="utf-8")
