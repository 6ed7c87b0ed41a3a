"""Limits the rate of log lines that clients or a shortage can cause repeatedly, so that they cannot fill the disk."""

import logging
import time
from collections.abc import Mapping

LINES_PER_PERIOD = 10
PERIOD_S = 1.0


class RateLimitedLog:
    """Logs up to `lines` lines in `period_s` and counts the others; the next logged line contains the count."""

    def __init__(self, logger: logging.Logger, lines: int = LINES_PER_PERIOD, period_s: float = PERIOD_S) -> None:
        self._logger = logger
        self._most_lines = lines
        self._period_s = period_s
        self._period_start = -period_s
        self._lines = 0
        self._left_out = 0

    def info(self, message: str, *arguments: object, extra: Mapping[str, object] | None = None) -> None:
        """Log at INFO, or only count the line. `extra` has more attributes of the record."""
        self._log(logging.INFO, message, arguments, extra)

    def warning(self, message: str, *arguments: object) -> None:
        """Log a warning, or only count it."""
        self._log(logging.WARNING, message, arguments)

    def _log(
        self, level: int, message: str, arguments: tuple[object, ...], extra: Mapping[str, object] | None = None
    ) -> None:
        now = time.monotonic()
        if now - self._period_start >= self._period_s:
            self._period_start = now
            self._lines = 0
        if self._lines >= self._most_lines:
            self._left_out += 1
            return
        self._lines += 1
        if self._left_out:
            message += f" ({self._left_out} similar lines were omitted)"
            self._left_out = 0
        self._logger.log(level, message, *arguments, extra=extra)
