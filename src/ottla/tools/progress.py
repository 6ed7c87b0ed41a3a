"""The progress of a long command: one line on standard error, redrawn if standard error is a terminal.

The line shows the number of finished items, their bytes and the rates of the last seconds. If the total is known, it
also shows a bar, the percentage and the remaining time. Parts that exceed the width of the terminal are omitted. Other
text for the terminal must go through `say`, or follow a `clear`.
"""

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ottla.common import units
from ottla.common.style import Style

_FIRST_S = 0.3  # shorter commands show no progress
_EVERY_S = 0.1
_SAMPLES = 40  # for rates over the last 4 seconds
_GAP = "  "
_NARROWEST, _WIDEST = 8, 30  # columns of the bar
_WIDE = 60  # A narrower terminal shows the numbers first, and the bar only if it fits.


def is_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def output_is_a_file() -> bool:
    """Whether standard output is a file or a device such as /dev/null.

    Results at a terminal show the progress themselves, and the reader of a pipe may print to the same terminal.
    """
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):  # a stream without a descriptor
        return False
    return not (sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def terminal_columns(stream: TextIO | None = None) -> int:
    """Return the width of the terminal behind `stream` (default: standard output); 80 if it is not a terminal.

    `shutil.get_terminal_size` does the same, but importing `shutil` takes 3 ms.
    """
    stream = sys.__stdout__ if stream is None else stream
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns if stream else 0
        except (OSError, ValueError):  # not a terminal, or closed
            columns = 0
    return columns or 80


class Progress:
    """The progress of one task. `advance` is cheap enough to be called for every item.

    `unit` is a plural noun, or "B" if the items are bytes. With `shown` False every method only counts.
    """

    def __init__(self, unit: str, *, shown: bool, total: int | None = None) -> None:
        self._unit, self._total = unit, total
        self._reached: Callable[[], int] | None = None
        self.shown = shown and is_terminal()
        self._count = self._size = 0
        self._start_s = time.monotonic()
        self._next_s = self._start_s + _FIRST_S
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=_SAMPLES)
        self._is_drawn = False

    def expect(self, total: int | None, reached: Callable[[], int] | None = None) -> None:
        """Set the total, in items or in the unit of `reached`, which returns the finished part of it."""
        self._total, self._reached = total, reached

    def advance(self, count: int = 1, size: int = 0) -> None:
        """Add `count` items of `size` bytes in total; (0, 0) only redraws the line."""
        self._count += count
        self._size += size
        if self.shown:
            now_s = time.monotonic()
            if now_s >= self._next_s:
                self._next_s = now_s + _EVERY_S
                self._draw(now_s)

    def clear(self) -> None:
        """Remove the line; the next `advance` may draw it again."""
        if self._is_drawn:
            self._is_drawn = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Remove the line at the end of the block, also after an exception."""
        try:
            yield
        finally:
            self.clear()

    def say(self, text: str) -> None:
        """Print a line of text above the progress line."""
        self.clear()
        print(text, file=sys.stderr)

    def _draw(self, now_s: float) -> None:
        self._samples.append((now_s, self._count, self._size))
        columns = terminal_columns(sys.stderr) - 3  # a full line would wrap, and a terminal appends ^C to it
        share = self._share()
        texts = self._texts(now_s, share)
        available = columns if share is None or columns < _WIDE else columns - _NARROWEST - len(_GAP)
        while len(texts) > 1 and len(_GAP.join(texts)) > available:
            texts.pop()
        line = _GAP.join(texts)[:columns]
        if share is not None:
            line = _bar(share, columns - len(line) - len(_GAP)) + line
        self._is_drawn = True
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()

    def _share(self) -> float | None:
        if not self._total:
            return None
        done = self._count if self._reached is None else self._reached()
        return min(1.0, max(0.0, done / self._total))

    def _texts(self, now_s: float, share: float | None) -> list[str]:
        """Return the parts of the line, the most important first."""
        rate, size_rate = self._rates(now_s)
        if self._unit == "B":
            of = f" of {units.size(self._total)}" if self._total else ""
            texts, rates = [f"{units.size(self._count)}{of}"], [f"{units.size(int(rate))}/s"]
        else:
            of = f" of {self._total:,}" if self._total and self._reached is None else ""
            texts, rates = [f"{self._count:,}{of} {self._unit}"], [f"{rate:,.0f}/s"]
        if share is not None:
            texts.insert(0, f"{share:4.0%}")
        if share and share < 1:
            left_s = (now_s - self._start_s) * (1 - share) / share
            rates.insert(0, f"{units.duration(round(left_s) * 1000) if left_s >= 1 else '1 s'} left")
        sizes = [units.size(self._size), f"{units.size(int(size_rate))}/s"] if self._size else []
        return [*texts, *rates, *sizes]

    def _rates(self, now_s: float) -> tuple[float, float]:
        """Return items and bytes per second."""
        then_s, count, size = self._samples[0] if len(self._samples) == _SAMPLES else (self._start_s, 0, 0)
        took_s = max(now_s - then_s, 1e-9)
        return (self._count - count) / took_s, (self._size - size) / took_s


def _bar(share: float, columns: int) -> str:
    width = min(_WIDEST, columns)
    if width < _NARROWEST:
        return ""
    style, full = Style.of(sys.stderr), round(width * share)
    return f"{style.green('━' * full)}{style.dim('━' * (width - full))}{_GAP}"
