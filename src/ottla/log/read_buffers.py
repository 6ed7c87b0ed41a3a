"""Memory for large reads that is used again: to map and clear fresh pages costs as much as to read into them.

Nobody says when an answer has been sent; a buffer is free when no view of it is left.
"""

import mmap
from typing import Final

from ottla.common.references import is_free

KEPT_BYTES: Final = 32 * 1024 * 1024
_GRAIN: Final = 256 * 1024


class ReadBuffers:
    """Gives out memory of at least the asked size; keeps up to 32 MiB of it."""

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self.kept_bytes = 0

    def take(self, size: int) -> memoryview:
        """A view of `size` bytes, of any content. Raises OSError if there is no such memory."""
        free = self._free(size)
        if free is not None:
            return free
        room = -(-size // _GRAIN) * _GRAIN
        fresh = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._keep(fresh)
        return memoryview(fresh)[:size]

    def _free(self, size: int) -> memoryview | None:
        kept = self._kept
        for index in range(len(kept)):  # an enumeration would hold a reference too
            if len(kept[index]) >= size and is_free(kept, index):
                return memoryview(kept[index])[:size]
        return None

    def _keep(self, fresh: mmap.mmap) -> None:
        """Keep it; free ones that are too small go for it."""
        kept, room = self._kept, len(fresh)
        for index in range(len(kept) - 1, -1, -1):
            if self.kept_bytes + room <= KEPT_BYTES:
                break
            if is_free(kept, index):
                self.kept_bytes -= len(kept.pop(index))
        if self.kept_bytes + room <= KEPT_BYTES:
            kept.append(fresh)
            self.kept_bytes += room
