"""Modules that take a second to import, with pyspark, pyarrow, numpy and clients: Java can start meanwhile."""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.streams import java_signals, planning, runtime
else:
    java_signals = LazyModule("ottla.streams.java_signals")
    planning = LazyModule("ottla.streams.planning")
    runtime = LazyModule("ottla.streams.runtime")

__all__ = ["java_signals", "planning", "runtime"]
