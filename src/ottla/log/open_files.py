"""Bounds the descriptors of sealed segments, and keeps a descriptor open while a reader uses it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

from ottla.log.files import Files


class FileOwner(Protocol):
    """A sealed segment: its descriptor may be closed and is opened again when needed."""

    fd: int

    @property
    def evictable(self) -> bool:
        """Whether the descriptor may be closed now."""

    def close_file(self) -> None:
        """Close the descriptor."""


MOST_OPEN: Final = 1000


class OpenFiles:
    """Closes the least recently used descriptor when there are more than `limit`."""

    def __init__(self, limit: int = MOST_OPEN) -> None:
        self.limit = limit
        self._thread = threading.get_ident()
        self._segments: OrderedDict[int, FileOwner] = OrderedDict()
        # Number of slices that read from a descriptor.
        self._pins: dict[int, int] = {}
        # Descriptors whose segments were closed meanwhile; the last `unpin` closes them.
        self._closed_while_pinned: set[int] = set()

    @property
    def count(self) -> int:
        """Number of sealed segments with an open file."""
        return len(self._segments)

    def touch(self, segment: FileOwner) -> None:
        """Note that `segment` was opened or used."""
        segments = self._segments
        segments[id(segment)] = segment
        segments.move_to_end(id(segment))
        self.trim()

    def trim(self) -> bool:
        """Close descriptors above the limit; False if too many segments wait for an fsync and must stay open."""
        while len(self._segments) > self.limit:
            if not self._close_one():
                return False
        return True

    def release_descriptor(self) -> bool:
        """Close one descriptor, for a process that has none left; whether there was one to close.

        The segment used last keeps its descriptor, because its caller may be reading. Nothing is closed in any thread
        but the reading thread.
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
        # Closing it would free nothing before its readers finish.
        return segment.fd in self._pins

    def forget(self, segment: FileOwner) -> None:
        """Note that `segment` was closed."""
        self._segments.pop(id(segment), None)

    def pin(self, fd: int) -> int:
        """Keep the descriptor open until `unpin`, even if its segment is closed."""
        self._pins[fd] = self._pins.get(fd, 0) + 1
        return fd

    def unpin(self, files: Files, fd: int) -> None:
        """Undo one `pin`."""
        pins = self._pins.pop(fd) - 1
        if pins:
            self._pins[fd] = pins
        elif fd in self._closed_while_pinned:
            self._closed_while_pinned.remove(fd)
            files.close(fd)

    def close(self, files: Files, fd: int) -> None:
        """Close a segment's descriptor, now or when its last reader unpins it."""
        if fd in self._pins:
            self._closed_while_pinned.add(fd)
        else:
            files.close(fd)
