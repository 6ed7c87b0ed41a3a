"""The files that a command reads, one after another; "-" is standard input. Knows how far reading has come."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from ottla.cli.terminal import Failure


class Inputs:
    """Opens the files, each once, in order. Raises Failure for one that cannot be read."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._finished = 0
        self._current: BinaryIO | None = None

    def check(self) -> None:
        """Raise Failure unless every file can be opened: before anything of the first one is used."""
        for path in self.paths:
            if path != "-":
                with _opened(path):
                    pass

    def total(self) -> int | None:
        """Bytes of all files together; None if one is a pipe or a terminal, whose end is not known."""
        sizes = [_size(path) for path in self.paths]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def reached(self) -> int:
        """Bytes that were read by now; whole buffers count."""
        current = self._current
        return self._finished + (0 if current is None else os.lseek(current.fileno(), 0, os.SEEK_CUR))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """The stream of one of the files."""
        stream = sys.stdin.buffer if path == "-" else _opened(path)
        if _size(path) is not None:
            self._current = stream
        try:
            yield stream
        finally:
            self._finished, self._current = self.reached(), None
            if path != "-":
                stream.close()


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", exit_code=2) from error


def _size(path: str) -> int | None:
    """The bytes of a regular file; None for anything else."""
    try:
        status = os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
