"""Modules that take long to import, beyond those of `ottla.tools.late`.

`streams` runs pipelines and needs pyspark, as does `lookup`, which reads tables; `observing` reads their statuses with
a consumer, `resetting` changes where they start.
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.streams import commands as streams
    from ottla.streams import lookup, observing, resetting
else:
    resetting = LazyModule("ottla.streams.resetting")
    observing = LazyModule("ottla.streams.observing")
    streams = LazyModule("ottla.streams.commands")
    lookup = LazyModule("ottla.streams.lookup")

__all__ = ["lookup", "observing", "resetting", "streams"]
