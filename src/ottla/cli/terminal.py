"""The streams of a command: warnings of clients on standard error, and closed or full streams."""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.common.style import Style
from ottla.launch.console import discard_standard_output


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


def log_warnings_only() -> None:
    """Leave the warnings of clients to the log of a command that has one."""
    logging.getLogger("ottla").removeHandler(_CLIENT_WARNINGS)


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
