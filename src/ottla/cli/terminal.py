"""Failures without a traceback, the log and warnings of clients on standard error, and closed or full streams."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ottla.common.log_lines import LimitedHandler, LineFormatter
from ottla.common.style import Style

# Describes record kernels that are not compiled.
NOT_COMPILED = "plain Python, which is slower: the install found no C compiler, or OTTLA_KERNELS asks for it"


class Failure(Exception):
    """The end of a command that failed: `problem` in one line, then lines with the next step."""

    def __init__(self, problem: str, *advice: str, exit_code: int = 1, command: str = "ottla") -> None:
        super().__init__(problem)
        self.problem = problem
        self.advice = advice
        self.exit_code = exit_code
        self.command = command


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


def start_logging(level: str) -> None:
    """Write all log lines to standard error, with a limited rate."""
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(LineFormatter(Style.of(sys.stderr)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class _ClientWarnings(logging.Handler):
    """Prints warnings of clients as lines of the command; replaces the progress line."""

    def emit(self, record: logging.LogRecord) -> None:
        text = " ".join(record.getMessage().split())
        erase = "\r\x1b[K" if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else ""
        sys.stderr.write(f"{erase}{Style.of(sys.stderr).yellow(f'ottla: {text}')}\n")
        sys.stderr.flush()


_CLIENT_WARNINGS = _ClientWarnings(logging.WARNING)


def warn_of_clients() -> None:
    """Print the warnings of clients on standard error from now on."""
    logging.getLogger("ottla").addHandler(_CLIENT_WARNINGS)  # repeated calls have no effect


_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Exit with code 141, as shells report SIGPIPE, if the reader of standard output has ended (`| head`).

    If standard output is a file on a full disk, print one line and exit with code 1.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_standard_output()
        raise SystemExit(141) from None
    except OSError as error:
        # An error of another file contains its name, or is a Failure already.
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        discard_standard_output()
        print(Style.of(sys.stderr).red(f"ottla: the output cannot be written: {error.strerror}"), file=sys.stderr)
        raise SystemExit(1) from None


def discard_standard_output() -> None:
    """Redirect standard output to /dev/null, because the interpreter flushes it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Open /dev/null for standard input, output or error if the process was started without it.

    Otherwise the next file or socket gets its number: output would go there, and an event loop rejects the number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if opened == number:  # the lowest free number
                os.set_inheritable(opened, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
