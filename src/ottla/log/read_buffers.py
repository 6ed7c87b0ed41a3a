"""A pool of memory for large reads: mapping and clearing new pages costs as much as reading into them.

Responses do not report when they are sent. A buffer is free when only the pool references it.
"""

import mmap
from typing import Final

from ottla.common.references import is_free

KEPT_BYTES: Final = 32 * 1024 * 1024
_GRAIN: Final = 256 * 1024


class ReadBuffers:
    """Allocates buffers and retains up to 32 MiB of them for reuse."""

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self.kept_bytes = 0

    def take(self, size: int) -> memoryview:
        """A view of `size` bytes with undefined content. Raises OSError if there is not enough memory."""
        free = self._free(size)
        if free is not None:
            return free
        capacity = -(-size // _GRAIN) * _GRAIN
        fresh = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._keep(fresh)
        return memoryview(fresh)[:size]

    def _free(self, size: int) -> memoryview | None:
        kept = self._kept
        for index in range(len(kept)):  # enumerate() would hold a reference, too
            if len(kept[index]) >= size and is_free(kept, index):
                return memoryview(kept[index])[:size]
        return None

    def _keep(self, fresh: mmap.mmap) -> None:
        """Retain a buffer; free smaller buffers are dropped to make space for it."""
        kept, capacity = self._kept, len(fresh)
        for index in range(len(kept) - 1, -1, -1):
            if self.kept_bytes + capacity <= KEPT_BYTES:
                break
            if is_free(kept, index):
                self.kept_bytes -= len(kept.pop(index))
        if self.kept_bytes + capacity <= KEPT_BYTES:
            kept.append(fresh)
            self.kept_bytes += capacity
