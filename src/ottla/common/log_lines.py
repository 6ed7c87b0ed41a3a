"""The log of a process as lines of text, with a limited rate, so that no client can fill the disk with them.

Each logger has a budget in bytes that refills over time. It is large enough for everything that a broker logs without
clients, such as a line for each of ten thousand new partitions. Lines that exceed the budget are dropped and counted;
the next line that fits follows a line with the count. The length of a line is bounded, because it may contain names
that clients choose.
"""

import logging
import time
from collections.abc import Callable
from typing import TextIO

from ottla.common.style import Style

LONGEST_MESSAGE = 2_000
BURST_BYTES = 4 << 20
BYTES_PER_SECOND = 4 << 10


def shorten(message: str) -> str:
    """Return the message; a long one is cut, with the number of omitted characters."""
    omitted = len(message) - LONGEST_MESSAGE
    return message if omitted <= 0 else f"{message[:LONGEST_MESSAGE]}... ({omitted} characters omitted)"


class _Budget:
    __slots__ = ("dropped_lines", "left_bytes", "refilled_s")

    def __init__(self, now_s: float) -> None:
        self.left_bytes = float(BURST_BYTES)
        self.refilled_s = now_s
        self.dropped_lines = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream within the budget of each logger. DEBUG lines have no limit: they are off by default."""

    def __init__(self, stream: TextIO, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._monotonic_s = monotonic_s
        self._budgets: dict[str, _Budget] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, or drop and count it. The caller holds the handler's lock."""
        try:
            text = self.format(record)
            if record.levelno >= logging.INFO:
                dropped = self._spend(record.name, len(text) + len(self.terminator))
                if dropped is None:
                    return
                if dropped:
                    message = f"Dropped {dropped} lines: they exceeded {BYTES_PER_SECOND} bytes a second"
                    line = logging.LogRecord(record.name, logging.WARNING, "", 0, message, None, None)
                    self.stream.write(self.format(line) + self.terminator)
            self.stream.write(text + self.terminator)
            self.flush()
        except (OSError, ValueError, TypeError):  # a closed stream, or arguments that do not fit the message
            self.handleError(record)

    def _spend(self, name: str, size: int) -> int | None:
        """Charge the budget; returns the number of lines dropped before this one, or None to drop this one, too."""
        now_s = self._monotonic_s()
        budget = self._budgets.setdefault(name, _Budget(now_s))
        refilled = budget.left_bytes + (now_s - budget.refilled_s) * BYTES_PER_SECOND
        budget.left_bytes = min(refilled, float(BURST_BYTES))
        budget.refilled_s = now_s
        if size > budget.left_bytes:
            budget.dropped_lines += 1
            return None
        budget.left_bytes -= size
        dropped, budget.dropped_lines = budget.dropped_lines, 0
        return dropped


class LineFormatter(logging.Formatter):
    """Formats `2026-01-31 12:00:00.123 WARN  network.server  message`, with a traceback if the record has one."""

    _NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}

    def __init__(self, style: Style) -> None:
        super().__init__()
        self._colours = style

    def format(self, record: logging.LogRecord) -> str:
        """Format a log record as one line."""
        level = f"{self._NAMES.get(record.levelname, record.levelname):<5}"
        if record.levelno >= logging.ERROR:
            level = self._colours.red(level)
        elif record.levelno >= logging.WARNING:
            level = self._colours.yellow(level)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        logger_name = record.name.removeprefix("ottla.")
        message = shorten(record.getMessage().replace("\r", "\\r").replace("\n", "\\n"))
        start = self._colours.dim(f"{moment}.{int(record.msecs):03d}")
        line = f"{start} {level} {self._colours.dim(logger_name)}  {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
