"""Bounds what a broker's log lines take of the disk, whatever its clients do.

Each logger has a budget in bytes that refills with time. It is large enough for everything that a broker logs by
itself, such as a line for each of ten thousand new partitions. Past it lines are left out and counted, and the next
line that fits is preceded by the count. One line has a bounded length, since names that clients choose are in it.
"""

import logging
import time
from collections.abc import Callable
from typing import TextIO

LONGEST_MESSAGE = 2_000
BURST_BYTES = 4 << 20
BYTES_PER_SECOND = 4 << 10


def shorten(message: str) -> str:
    """The message, or its start and how much was left out."""
    left_out = len(message) - LONGEST_MESSAGE
    return message if left_out <= 0 else f"{message[:LONGEST_MESSAGE]}... ({left_out} characters left out)"


class _Budget:
    __slots__ = ("left_bytes", "left_out", "refilled_s")

    def __init__(self, now_s: float) -> None:
        self.left_bytes = float(BURST_BYTES)
        self.refilled_s = now_s
        self.left_out = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream within each logger's budget. Lines below INFO, which someone asked for, have none."""

    def __init__(self, stream: TextIO, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._monotonic_s = monotonic_s
        self._budgets: dict[str, _Budget] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, or count it. Called with the handler's lock held."""
        try:
            text = self.format(record)
            if record.levelno >= logging.INFO:
                left_out = self._spend(record.name, len(text) + len(self.terminator))
                if left_out is None:
                    return
                if left_out:
                    message = f"{left_out} lines were left out: they exceed {BYTES_PER_SECOND} bytes a second"
                    line = logging.LogRecord(record.name, logging.WARNING, "", 0, message, None, None)
                    self.stream.write(self.format(line) + self.terminator)
            self.stream.write(text + self.terminator)
            self.flush()
        except (OSError, ValueError, TypeError):  # the stream is closed, or arguments do not fit their message
            self.handleError(record)

    def _spend(self, name: str, size: int) -> int | None:
        """How many lines were left out before this one; None if it is left out, too."""
        now_s = self._monotonic_s()
        budget = self._budgets.setdefault(name, _Budget(now_s))
        refilled = budget.left_bytes + (now_s - budget.refilled_s) * BYTES_PER_SECOND
        budget.left_bytes = min(refilled, float(BURST_BYTES))
        budget.refilled_s = now_s
        if size > budget.left_bytes:
            budget.left_out += 1
            return None
        budget.left_bytes -= size
        left_out, budget.left_out = budget.left_out, 0
        return left_out
