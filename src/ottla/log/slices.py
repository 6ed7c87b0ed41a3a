"""A part of a segment that is read when it is sent, so that a client which asks for 50 MB and does not take them costs
no memory, and one that takes them has the first while the next are read.

The segment's descriptor stays open for it, also when the segment is closed, replaced or removed meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from ottla.log.segment import Segment
    from ottla.records import Buffer


class FileSlice(Unread):
    """The bytes from `position` to `end`. It unpins the descriptor; `failed` gets an OSError, and raises."""

    __slots__ = ("_end", "_failed", "_fd", "_position", "_segment")

    def __init__(
        self, segment: Segment, pinned_fd: int, position: int, end: int, failed: Callable[[OSError], NoReturn]
    ) -> None:
        self._segment = segment
        self._fd = pinned_fd
        self._position = position
        self._end = end
        self._failed = failed

    def __len__(self) -> int:
        return self._end - self._position

    def take(self, size: int) -> Buffer:
        """The next `size` bytes, or as many as are left. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        segment, position = self._segment, self._position
        size = min(size, self._end - position)
        try:
            data = segment.files.pread_large(self._fd, size, position)
        except OSError as error:
            self._failed(error)
        if len(data) != size:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path()} is shorter than {position + size} bytes")
        self._position = position + size
        return data

    def __del__(self) -> None:
        # An answer may be dropped anywhere between here and the socket.
        self._segment.open_files.unpin(self._segment.files, self._fd)
