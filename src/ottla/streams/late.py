"""Modules that take a second to import, with pyspark, pyarrow, numpy and clients: Java can start meanwhile."""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.streams import planning, runtime
else:
    planning = LazyModule("ottla.streams.planning")
    runtime = LazyModule("ottla.streams.runtime")

__all__ = ["planning", "runtime"]
