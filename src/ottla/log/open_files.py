"""The descriptors of sealed segments: not too many at a time, and none closed while somebody reads from it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from ottla.log.files import Files


class FileOwner(Protocol):
    """What has a descriptor that may be closed, and is opened again when it is needed: a sealed segment."""

    @property
    def evictable(self) -> bool:
        """Whether that may be now."""

    def close_file(self) -> None:
        """Close it."""


class OpenFiles:
    """Bounds the descriptors of sealed segments: the one used longest ago is closed."""

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self._segments: OrderedDict[int, FileOwner] = OrderedDict()
        # How many slices read from a descriptor, and which of these their segments have closed.
        self._pins: dict[int, int] = {}
        self._left: set[int] = set()

    def touch(self, segment: FileOwner) -> None:
        """`segment` was opened or used just now."""
        segments = self._segments
        segments[id(segment)] = segment
        segments.move_to_end(id(segment))
        if len(segments) > self.limit:
            for key, other in segments.items():
                if other.evictable and other is not segment:
                    del segments[key]
                    other.close_file()
                    return

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
