"""`ottla up` whose chores are done twenty times a second: deaths are to hit them, and lives are short.

`python hurried.py up ...` is `ottla up ...`. Settings make some chores frequent, but not metadata snapshots and
compaction, which are looked after once a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ottla.broker import server
from ottla.broker.housekeeping import Housekeeping
from ottla.cli import main

INTERVAL_MS = 50


class Hurried(Housekeeping):
    """Every interval is short."""

    def every(self, name: str, interval_ms: int, chore: Callable[[], None], *, first_ms: int | None = None) -> None:
        first_ms = interval_ms if first_ms is None else first_ms
        super().every(name, min(interval_ms, INTERVAL_MS), chore, first_ms=min(first_ms, INTERVAL_MS))


if __name__ == "__main__":
    server.Housekeeping = Hurried  # type: ignore[misc]
    sys.exit(main.main(sys.argv[1:]))
