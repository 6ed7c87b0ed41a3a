"""Modules that take long to import, beyond those of `ottla.tools.late`.

`completion` is needed only when a shell completes a word, and imports the commands. `failures` explains errors of
clients, and `foreign_words` unknown options and commands. `root` has the commands; `ottla up` starts without it, and
other commands start without the broker (`serve`). `streams` runs pipelines and needs pyspark; `lookup` reads tables,
`observing` the statuses of pipelines, with a consumer; `resetting` changes where they start.
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.cli import completion, failures, foreign_words, root
    from ottla.launch import serve
    from ottla.streams import commands as streams
    from ottla.streams import lookup, observing, resetting
else:
    completion = LazyModule("ottla.cli.completion")
    failures = LazyModule("ottla.cli.failures")
    foreign_words = LazyModule("ottla.cli.foreign_words")
    root = LazyModule("ottla.cli.root")
    serve = LazyModule("ottla.launch.serve")
    resetting = LazyModule("ottla.streams.resetting")
    observing = LazyModule("ottla.streams.observing")
    streams = LazyModule("ottla.streams.commands")
    lookup = LazyModule("ottla.streams.lookup")

__all__ = ["completion", "failures", "foreign_words", "lookup", "observing", "resetting", "root", "serve", "streams"]
