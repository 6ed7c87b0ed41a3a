"""The input files of a command, read one after another; "-" is standard input. Counts the bytes that were read."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from ottla.common.failure import reading


class Inputs:
    """Opens each file once, in order. Raises Failure for a file that cannot be opened."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._finished = 0
        self._current: BinaryIO | None = None

    def check(self) -> None:
        """Raise Failure unless every file can be opened, before the first one is read."""
        for path in self.paths:
            if path != "-":
                with _opened(path):
                    pass

    def total(self) -> int | None:
        """Return the bytes of all files together; None if one is a pipe or a terminal, whose size is unknown."""
        sizes = [_size(path) for path in self.paths]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def reached(self) -> int:
        """Return the number of bytes read so far, including buffered ones."""
        current = self._current
        return self._finished + (0 if current is None else os.lseek(current.fileno(), 0, os.SEEK_CUR))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open one of the files."""
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
    with reading(path):
        return open(path, "rb")


def _size(path: str) -> int | None:
    """Return the size of a regular file; None for anything else."""
    try:
        status = os.fstat(sys.stdin.fileno()) if path == "-" else os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
