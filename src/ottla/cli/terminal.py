"""What a person sees: colours where the terminal has them, failures without a traceback, one-line logs."""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ottla.cli.log_limit import LimitedHandler, shorten

# What the record kernels are where they were not built.
NOT_COMPILED = "plain Python, which is slower: the install found no C compiler, or OTTLA_KERNELS asks for it"


class Failure(Exception):
    """The end of a command that failed: `problem` in one line, then lines with the next step."""

    def __init__(self, problem: str, *advice: str, exit_code: int = 1, command: str = "ottla") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.exit_code = exit_code
        self.command = command


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


def terminal_columns(stream: TextIO | None = None) -> int:
    """The width of the terminal that `stream` (default: standard output) is; 80 if it is none.

    `shutil.get_terminal_size` does the same, but its module loads three formats of archives: 3 ms of a start.
    """
    stream = sys.__stdout__ if stream is None else stream
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
    except ValueError:
        columns = 0
    if columns <= 0:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns if stream else 0
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
        message = shorten(record.getMessage().replace("\r", "\\r").replace("\n", "\\n"))
        line = f"{self._colours.dim(f'{moment}.{int(record.msecs):03d}')} {level} {self._colours.dim(room)}  {message}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def start_logging(level: str) -> None:
    """Send all log lines to standard error, within a bounded rate."""
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(LineFormatter(Style.of(sys.stderr)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _ClientWarnings(logging.Handler):
    """Shows a client's warning as a line of the command, in place of a progress line that may be there."""

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        erase = "\r\x1b[K" if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else ""
        sys.stderr.write(f"{erase}{Style.of(sys.stderr).yellow(f'ottla: {text}')}\n")
        sys.stderr.flush()


_CLIENT_WARNINGS = _ClientWarnings(logging.WARNING)


def warn_of_clients() -> None:
    """Print the warnings of clients on standard error from now on."""
    logging.getLogger("ottla").addHandler(_CLIENT_WARNINGS)  # a second time does nothing


_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End quietly, with exit code 141 as a shell has it for SIGPIPE, when nobody reads on (`| head`).

    Where standard output goes to a file and its disk is full, that is one line and exit code 1.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_standard_output()
        raise SystemExit(141) from None
    except OSError as error:
        # What writes a file of its own names it, or has made a Failure of it.
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        _forget_standard_output()
        print(Style.of(sys.stderr).red(f"ottla: the output cannot be written: {error.strerror}"), file=sys.stderr)
        raise SystemExit(1) from None


def _forget_standard_output() -> None:
    """The interpreter flushes standard output once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Give a process that was started without standard input, output or error /dev/null for it.

    Else the next file or socket gets that number, is written to as if it were standard output, and is more than an
    event loop takes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if opened == number:  # as the lowest number that is free
                os.set_inheritable(opened, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
