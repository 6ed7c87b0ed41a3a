"""Modules that take long to import, and that help pages and completion do not need: imported at their first use.

`api` is `ottla.clients.admin`, whose import takes 150 ms; `ottla.clients` itself imports its names at their first use.
`dump` reads and prints the files of logs (180 ms).
"""

from typing import TYPE_CHECKING

from ottla.common.lazy import LazyModule

if TYPE_CHECKING:
    from ottla.clients import admin as api
    from ottla.tools.dump import printer as dump
else:
    api = LazyModule("ottla.clients.admin")
    dump = LazyModule("ottla.tools.dump.printer")

__all__ = ["api", "dump"]
