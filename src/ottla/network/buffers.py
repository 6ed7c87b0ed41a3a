"""Receive buffers that are used again: a fresh megabyte costs more to zero and map than to fill from the socket."""

import mmap
from typing import Final

from ottla.common.references import is_free

SMALLEST_POOLED_BYTES = 64 * 1024
LARGEST_POOLED_BYTES = 2 * 1024 * 1024
MOST_POOLED_BYTES = 16 * 1024 * 1024


class BufferPool:
    """Gives out buffers of at least the asked size; keeps at most 16 MiB of those given back."""

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._pooled_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer with room for `size` bytes, of any content."""
        if not SMALLEST_POOLED_BYTES <= size <= LARGEST_POOLED_BYTES:
            return bytearray(size)
        size = 1 << (size - 1).bit_length()
        free = self._free.get(size)
        if free:
            self._pooled_bytes -= size
            return free.pop()
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        """Nobody uses `buffer` any more."""
        size = len(buffer)
        pooled = SMALLEST_POOLED_BYTES <= size <= LARGEST_POOLED_BYTES and not size & (size - 1)
        if pooled and self._pooled_bytes + size <= MOST_POOLED_BYTES:
            self._pooled_bytes += size
            self._free.setdefault(size, []).append(buffer)


LARGEST_KEPT_BYTES: Final = 16 * 1024 * 1024
MOST_KEPT: Final = 2
_GRAIN: Final = 1024 * 1024


class FrameBuffers:
    """Buffers of large frames of which nobody says when he is done: one is used again when no view of it is left.

    They are maps, so that one of a size that was only claimed takes no memory. Two of up to 16 MiB are kept.
    """

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []

    def take(self, size: int) -> mmap.mmap:
        """A buffer with room for `size` bytes, of any content. Raises OSError if there is no such memory."""
        for index in range(len(self._kept)):  # an enumeration would hold a reference too
            if is_free(self._kept, index):
                if len(self._kept[index]) >= size:
                    return self._kept[index]
                del self._kept[index]
                break
        room = -(-size // _GRAIN) * _GRAIN
        fresh = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if room <= LARGEST_KEPT_BYTES and len(self._kept) < MOST_KEPT:
            self._kept.append(fresh)
        return fresh
