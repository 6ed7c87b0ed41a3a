"""Memory for the bytes that all connections of a broker have received and not handled yet.

A connection without a half-received frame owns no buffer: all connections read into one shared `scratch`, which is
why a thousand idle connections cost little. A frame that is not complete moves to a buffer of its own.

`used_bytes` is the sum of these buffers. Beyond the limit a connection must wait before its buffer grows. One exempt
connection at a time may grow all the same: otherwise half-received frames could wait for each other for ever.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ottla.network.buffers import BufferPool, FrameBuffer
from ottla.network.limits import Limits

SCRATCH_BYTES = 256 * 1024


class MemoryWaiter(Protocol):
    """A connection that waits until its buffer may grow."""

    def memory_available(self) -> None:
        """Called when memory was released: reserve again."""


class ReceiveMemory:
    """The scratch buffer, the pool of frame buffers, and the limit on the bytes in use."""

    def __init__(self, limits: Limits) -> None:
        self.set_limits(limits)
        # All connections share it, because the bytes of a read are handled or moved before the next read.
        self._whole_scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.scratch = self._whole_scratch
        self.used_bytes = 0
        self._pool = BufferPool()
        self._exempt: MemoryWaiter | None = None
        self._waiters: deque[MemoryWaiter] = deque()

    def set_limits(self, limits: Limits) -> None:
        """Take over the limits on one frame and on all buffers."""
        self.max_frame_bytes = limits.max_frame_bytes
        self.max_used_bytes = limits.max_buffered_bytes

    @property
    def waiter_count(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiters)

    def limit_scratch(self, size: int) -> None:
        """Read at most `size` bytes at a time into the scratch buffer."""
        self.scratch = self._whole_scratch[:size]

    def fits(self, more_bytes: int) -> bool:
        """Whether the limit allows `more_bytes` more."""
        return self.used_bytes + more_bytes <= self.max_used_bytes

    def take(self, size: int) -> FrameBuffer:
        """Allocate a buffer of at least `size` bytes. Raises OSError if the system has no memory for it."""
        buffer = self._pool.take(size)
        self.used_bytes += len(buffer)
        return buffer

    def take_larger(self, owner: MemoryWaiter, buffer: FrameBuffer, size: int) -> FrameBuffer | None:
        """Allocate a larger buffer for the owner; None if it must wait: `memory_available` is called later.

        Raises OSError if the system has no memory for it.
        """
        if not self.fits(size - len(buffer)) and self._exempt is not owner:
            if self._exempt is not None:
                self._waiters.append(owner)
                return None
            self._exempt = owner
        larger = self.take(size)
        self.used_bytes -= len(buffer)
        return larger

    def release(self, owner: MemoryWaiter, buffer: FrameBuffer) -> None:
        """Stop counting the owner's buffer; its bytes stay valid until `recycle`."""
        self.used_bytes -= len(buffer)
        if self._exempt is owner:
            self._exempt = None
        if self._waiters:
            self._wake_waiters()

    def recycle(self, buffer: FrameBuffer) -> None:
        """Return a released buffer to the pool."""
        self._pool.give_back(buffer)

    def trim(self) -> None:
        """Return the memory of pooled buffers that were not needed since the previous call."""
        self._pool.trim()

    def forget(self, owner: MemoryWaiter) -> None:
        """End the exemption of a connection that is lost."""
        if self._exempt is owner:
            self._exempt = None
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        """Notify waiters in the order of their arrival, up to the first for which there is not enough memory.

        That waiter appends itself to the queue again and is moved back to the front. The waiters behind it are not
        notified, so that the cost of a release depends on the waiters that it serves, not on all waiters.
        """
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            waiter.memory_available()
            if waiters and waiters[-1] is waiter:
                waiters.rotate(1)
                return
