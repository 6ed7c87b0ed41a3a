"""A part of a segment that is read only when it is sent.

A client that requests 50 MB and does not read them costs no memory, and a client that reads them receives the first
part while the next is read. The slice pins the segment's descriptor, so it stays readable when the segment is closed,
replaced or deleted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.unread import Unread

if TYPE_CHECKING:
    from ottla.log.context import LogContext
    from ottla.log.segment_file import SegmentFile
    from ottla.records import Buffer


class FileSlice(Unread):
    """The bytes from `position` to `end` of a segment whose descriptor is pinned. It unpins the descriptor."""

    __slots__ = ("_context", "_end", "_fd", "_file", "_position")

    def __init__(self, file: SegmentFile, pinned_fd: int, position: int, end: int, context: LogContext) -> None:
        self._file = file
        self._fd = pinned_fd
        self._position = position
        self._end = end
        self._context = context

    def __len__(self) -> int:
        return self._end - self._position

    def take(self, size: int) -> Buffer:
        """Read the next `size` bytes, or as many as are left. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        file, position = self._file, self._position
        size = min(size, self._end - position)
        try:
            data = file.files.pread_large(self._fd, size, position)
        except OSError as error:
            self._context.fail(error, "read from")
        if len(data) != size:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{file.path()} is shorter than {position + size} bytes")
        self._position = position + size
        return data

    def __del__(self) -> None:
        # A response may be dropped anywhere between here and the socket.
        self._file.open_files.unpin(self._file.files, self._fd)
