"""Modules that take long to import, and that help pages and completion do not need: imported at their first use.

`api` is `ottla.clients.admin`, whose import takes 150 ms; `ottla.clients` itself imports its names at their first use.
`dump` reads and prints the files of logs (180 ms). `streams` runs pipelines and needs pyspark.
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.cli import dump_printer as dump
    from ottla.clients import admin as api
    from ottla.streams import commands as streams
else:
    api = LazyModule("ottla.clients.admin")
    dump = LazyModule("ottla.cli.dump_printer")
    streams = LazyModule("ottla.streams.commands")

__all__ = ["api", "dump", "streams"]
