"""What a person sees: colours where the terminal has them, failures without a traceback, one-line logs."""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Failure(Exception):
    """A command that cannot go on: `problem` in one line, then what to do about it."""

    def __init__(self, problem: str, *advice: str, exit_code: int = 1) -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.exit_code = exit_code


class Style:
    """Colours, or none: only on a terminal, and never with NO_COLOR (https://no-color.org)."""

    def __init__(self, *, coloured: bool) -> None:
        self.coloured = coloured

    @classmethod
    def of(cls, stream: TextIO) -> "Style":
        """The style for what is written to `stream`."""
        plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
        return cls(coloured=stream.isatty() and not plain)

    def bold(self, text: str) -> str:
        """What matters most."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """What may be passed over."""
        return self._wrap("2", text)

    def green(self, text: str) -> str:
        """It went well."""
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        """Worth a look."""
        return self._wrap("33", text)

    def red(self, text: str) -> str:
        """It went wrong."""
        return self._wrap("31", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured else text


def terminal_columns() -> int:
    """As `shutil.get_terminal_size`, whose module loads three formats of archives: 3 ms of a start."""
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else 0
        except (OSError, ValueError):  # no terminal, or closed
            columns = 0
    return columns or 80


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 WARN  network.server  message`; a traceback only where one was logged on purpose."""

    _NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}

    def __init__(self, style: Style) -> None:
        super().__init__()
        self._colours = style

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        level = f"{self._NAMES.get(record.levelname, record.levelname):<5}"
        if record.levelno >= logging.ERROR:
            level = self._colours.red(level)
        elif record.levelno >= logging.WARNING:
            level = self._colours.yellow(level)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        room = record.name.removeprefix("ottla.")
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{self._colours.dim(f'{moment}.{int(record.msecs):03d}')} {level} {self._colours.dim(room)}  {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def start_logging(level: str) -> None:
    """Send all log lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(Style.of(sys.stderr)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End quietly, with exit code 141 as a shell has it for SIGPIPE, when nobody reads on (`| head`)."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
