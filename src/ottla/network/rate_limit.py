"""Log lines that clients can cause, at a bounded rate: bad input must not fill the disk."""

import logging
import time

LINES_PER_PERIOD = 10
PERIOD_S = 1.0


class RateLimitedLog:
    """Passes up to ten warnings a second and counts the rest, which the next line that passes mentions."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._period_start = 0.0
        self._lines = 0
        self._left_out = 0

    def warning(self, message: str, *arguments: object) -> None:
        """Log a warning, or count it."""
        now = time.monotonic()
        if now - self._period_start >= PERIOD_S:
            self._period_start = now
            self._lines = 0
        if self._lines >= LINES_PER_PERIOD:
            self._left_out += 1
            return
        self._lines += 1
        if self._left_out:
            message += f" ({self._left_out} such lines were left out)"
            self._left_out = 0
        self._logger.warning(message, *arguments)
