"""Bytes that a TLS connection has to send, cut into TLS records; does no I/O.

OpenSSL encrypts one record at a time. If the socket does not take it completely, the same bytes must be given to
OpenSSL again: `record` returns the same record until `sent` is called. Small parts share a record, since each costs an
encryption, a system call and 22 bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.protocol.wire import Buffer

RECORD_BYTES: Final = 16 * 1024


class RecordQueue:
    """Views of buffers, first in, first out."""

    __slots__ = ("_parts", "_record", "size")

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()
        self._record: Buffer = b""
        self.size = 0
        """Bytes that were not sent yet."""

    def add(self, parts: Iterable[Buffer]) -> None:
        """Queue buffers."""
        for part in parts:
            view = memoryview(part)
            if view.nbytes:
                self._parts.append(view if view.format == "B" and view.ndim == 1 else view.cast("B"))
                self.size += view.nbytes

    def record(self) -> Buffer:
        """Return the next record, of at most `RECORD_BYTES`; empty if the queue is empty."""
        if not len(self._record) and self._parts:
            first = self._parts[0]
            if len(first) >= RECORD_BYTES:
                self._record = self._cut(RECORD_BYTES)
            else:
                pieces: list[memoryview] = []
                left = RECORD_BYTES
                while left and self._parts:
                    pieces.append(self._cut(left))
                    left -= len(pieces[-1])
                self._record = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return self._record

    def _cut(self, most: int) -> memoryview:
        """Remove up to `most` bytes of the first part."""
        first = self._parts[0]
        if len(first) <= most:
            return self._parts.popleft()
        self._parts[0] = first[most:]
        return first[:most]

    def sent(self, size: int) -> None:
        """Drop the first `size` bytes of the record."""
        self._record = self._record[size:] if size < len(self._record) else b""
        self.size -= size

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()
        self._record = b""
        self.size = 0
