"""`LogManagerPorts`: what the log manager calls outside of its package."""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.log.directory import DirectoryInfo


def _at_once(work: Callable[[], None]) -> None:
    work()


class LogManagerPorts(NamedTuple):
    """What the log manager calls: `directory_failed` once for each directory, `in_background` for slow work."""

    directory_failed: Callable[[DirectoryInfo, OSError], None] | None = None
    in_background: Callable[[Callable[[], None]], object] = _at_once


NO_PORTS: Final = LogManagerPorts()
