"""The descriptors of sealed segments: not too many at a time, and none closed while somebody reads from it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

from ottla.log.files import Files


class FileOwner(Protocol):
    """What has a descriptor that may be closed, and is opened again when it is needed: a sealed segment."""

    fd: int

    @property
    def evictable(self) -> bool:
        """Whether that may be now."""

    def close_file(self) -> None:
        """Close it."""


MOST_OPEN: Final = 1000


class OpenFiles:
    """Bounds the descriptors of sealed segments: the one used longest ago is closed."""

    def __init__(self, limit: int = MOST_OPEN) -> None:
        self.limit = limit
        self._thread = threading.get_ident()
        self._segments: OrderedDict[int, FileOwner] = OrderedDict()
        # How many slices read from a descriptor, and which of these their segments have closed.
        self._pins: dict[int, int] = {}
        self._left: set[int] = set()

    @property
    def count(self) -> int:
        """How many sealed segments have their files open."""
        return len(self._segments)

    def touch(self, segment: FileOwner) -> None:
        """`segment` was opened or used just now."""
        segments = self._segments
        segments[id(segment)] = segment
        segments.move_to_end(id(segment))
        self.trim()

    def trim(self) -> bool:
        """Close what is beyond the limit; whether that could be done: segments that wait for an fsync stay open."""
        while len(self._segments) > self.limit:
            if not self._close_one():
                return False
        return True

    def release_descriptor(self) -> bool:
        """Close one descriptor, for a process that has none left; whether there was one to close.

        The segment used last keeps its descriptor, for its caller may be reading. Another thread than the one that
        reads closes nothing.
        """
        return threading.get_ident() == self._thread and self._close_one()

    def _close_one(self) -> bool:
        last = next(reversed(self._segments), None)
        for key, segment in self._segments.items():
            if segment.evictable and key != last and not self._is_pinned(segment):
                del self._segments[key]
                segment.close_file()
                return True
        return False

    def _is_pinned(self, segment: FileOwner) -> bool:
        # Closing it would free nothing before its readers are done.
        return segment.fd in self._pins

    def forget(self, segment: FileOwner) -> None:
        """`segment` was closed."""
        self._segments.pop(id(segment), None)

    def pin(self, fd: int) -> int:
        """Keep the descriptor open until `unpin`, whatever becomes of its segment."""
        self._pins[fd] = self._pins.get(fd, 0) + 1
        return fd

    def unpin(self, files: Files, fd: int) -> None:
        """Take back one `pin`."""
        pins = self._pins.pop(fd) - 1
        if pins:
            self._pins[fd] = pins
        elif fd in self._left:
            self._left.remove(fd)
            files.close(fd)

    def close(self, files: Files, fd: int) -> None:
        """Close a segment's descriptor, now or when the last one who reads from it is done."""
        if fd in self._pins:
            self._left.add(fd)
        else:
            files.close(fd)
