"""Modules that take long to import, beyond those of `ottla.tools.late`: `streams` runs pipelines and needs pyspark."""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.streams import commands as streams
else:
    streams = LazyModule("ottla.streams.commands")

__all__ = ["streams"]
