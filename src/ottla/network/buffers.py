"""Receive buffers of half-received frames: their size, their allocation, and the release of their memory.

The size of a frame is only a claim until its bytes arrive; `frame_capacity` limits the memory for a claim. Buffers of
64 KiB and more are anonymous maps: pages without data take no memory, and the system gets the memory of a dropped map
back at once. Memory from malloc would stay in the process after a burst of connections.
"""

import mmap
from typing import Final, TypeAlias

from ottla.common.references import is_free

FrameBuffer: TypeAlias = bytearray | mmap.mmap

SMALLEST_POOLED_BYTES = 64 * 1024
LARGEST_POOLED_BYTES = 2 * 1024 * 1024
MOST_POOLED_BYTES = 16 * 1024 * 1024
# Up to this size the buffer of an incomplete frame has at most eight times the bytes that have arrived.
TRUSTED_FRAME_BYTES: Final = 2 * 1024 * 1024
TRUST: Final = 8
LEAST_CAPACITY_BYTES: Final = 4 * 1024


def frame_capacity(received: int, needed: int) -> int:
    """Bytes to allocate for a frame of `needed` bytes when `received` of them have arrived.

    Up to 2 MiB a buffer is at most eight times as large as what arrived (and at least 4 KiB), so that growing it copies
    no more than a third of the frame. Larger frames double their buffer.
    """
    trusted = min(max(TRUST * received, LEAST_CAPACITY_BYTES), TRUSTED_FRAME_BYTES)
    return min(needed, max(trusted, 2 * received))


def grown_capacity(capacity: int, received: int, needed: int) -> int:
    """The capacity that a frame's buffer of `capacity` bytes should have now; not less than it has.

    A buffer grows when it is half full. One that may hold the whole frame grows earlier, when there is least to copy.
    """
    if capacity >= needed:
        return capacity
    wanted = frame_capacity(received, needed)
    is_whole = wanted == needed <= TRUSTED_FRAME_BYTES
    return max(wanted, capacity) if is_whole or 2 * received >= capacity else capacity


def _anonymous_map(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class BufferPool:
    """Allocates buffers of at least the requested size; retains at most 16 MiB of returned buffers.

    `trim` returns the memory of the retained buffers that were not needed since the previous call.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[mmap.mmap]] = {}
        # For each size: how many buffers have not been taken since the last `trim`.
        self._idle: dict[int, int] = {}
        self._pooled_bytes = 0

    @property
    def pooled_bytes(self) -> int:
        """Bytes of the retained buffers."""
        return self._pooled_bytes

    def take(self, size: int) -> FrameBuffer:
        """Return a buffer of at least `size` bytes with any content. Raises OSError if the system has no memory."""
        if size < SMALLEST_POOLED_BYTES:
            return bytearray(size)
        if size > LARGEST_POOLED_BYTES:
            return _anonymous_map(size)
        size = 1 << (size - 1).bit_length()
        free = self._free.get(size)
        if not free:
            return _anonymous_map(size)
        self._pooled_bytes -= size
        buffer = free.pop()
        if self._idle[size] > len(free):
            self._idle[size] = len(free)
        return buffer

    def give_back(self, buffer: FrameBuffer) -> None:
        """Retain `buffer`, which must not be in use any more, for the next `take`."""
        size = len(buffer)
        if not isinstance(buffer, mmap.mmap) or size > LARGEST_POOLED_BYTES or size & (size - 1):
            return
        if self._pooled_bytes + size <= MOST_POOLED_BYTES:
            self._pooled_bytes += size
            self._free.setdefault(size, []).append(buffer)
            self._idle.setdefault(size, 0)

    def trim(self) -> None:
        """Return the memory of buffers that no `take` needed since the previous call."""
        for size, free in self._free.items():
            # `take` takes from the end, so that the first buffers have been idle longest.
            idle = self._idle[size]
            del free[:idle]
            self._pooled_bytes -= idle * size
            self._idle[size] = len(free)


LARGEST_REUSED_BYTES: Final = 16 * 1024 * 1024
MOST_REUSED: Final = 2
_GRAIN: Final = 1024 * 1024


class FrameBuffers:
    """Buffers of large responses. A buffer is reused when only the pool references it, so that none is returned.

    They are anonymous maps, so that a claimed size takes no memory. At most two buffers of up to 16 MiB are pooled.
    """

    def __init__(self) -> None:
        self._pool: list[mmap.mmap] = []

    def take(self, size: int) -> mmap.mmap:
        """Return a buffer of at least `size` bytes with any content. Raises OSError if the system has no memory."""
        for index in range(len(self._pool)):  # `enumerate` would hold a reference, too
            if is_free(self._pool, index):
                if len(self._pool[index]) >= size:
                    return self._pool[index]
                del self._pool[index]
                break
        capacity = -(-size // _GRAIN) * _GRAIN
        fresh = _anonymous_map(capacity)
        if capacity <= LARGEST_REUSED_BYTES and len(self._pool) < MOST_REUSED:
            self._pool.append(fresh)
        return fresh
