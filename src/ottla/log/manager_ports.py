"""`LogManagerPorts`: what the log manager calls outside of its package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.common.values import value
from ottla.log.directory import DirectoryInfo


def _at_once(work: Callable[[], None]) -> None:
    work()


@value
class LogManagerPorts:
    """The callbacks of the log manager: `directory_failed` once for each directory, `in_background` for slow work."""

    directory_failed: Callable[[DirectoryInfo, OSError], None] | None = None
    in_background: Callable[[Callable[[], None]], object] = _at_once


NO_PORTS: Final = LogManagerPorts()
