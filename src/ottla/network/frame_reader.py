"""Cuts the bytes that one connection receives into frames; does no I/O.

The caller repeats these steps:

1. `get_buffer`: the memory to read into.
2. `received(n)`: `n` bytes are there.
3. `next_frame` until it returns None or no further request may be handled now.
4. `retain`: move the remaining bytes to a buffer that the connection owns.
5. `reserve`: make sure that there is memory to read into; otherwise stop reading.

A frame is a writable view without the four bytes of its size, valid until `retain`. No byte of a frame is copied if
one read holds the whole frame. Otherwise the size that a client claims is believed only as far as bytes have arrived
(`buffers.frame_capacity`): growing a buffer copies at most a third of a frame of up to 2 MiB, and as much as the frame
has bytes beyond that.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.network.buffers import FrameBuffer, frame_capacity, grown_capacity
from ottla.network.receive_memory import SCRATCH_BYTES, MemoryWaiter, ReceiveMemory
from ottla.protocol.wire import DecodeError

SIZE_BYTES: Final = 4
LEAST_BUFFER_BYTES: Final = 1024
# A client that pipelines has more to send: a buffer of a kilobyte would cost a read and a write for every few requests.
PIPELINE_BUFFER_BYTES: Final = 16 * 1024
# Bytes that are received while a request is in progress. The rest stays in the socket and in the client.
# Also the buffer of a client that fills a smaller one: 16 KB would cost a read and a write for each request of 10 KB.
READ_AHEAD_BYTES: Final = 64 * 1024
_NO_BYTES: Final = memoryview(b"")
_read_size = struct.Struct(">i").unpack_from


class FrameReader:
    """The received bytes of one connection: `_data[_position:_end]` is not handled yet.

    `_data` is the shared scratch buffer, or `_buffer` if the connection owns one. Between reads a connection without a
    buffer has no bytes, and the bytes of an own buffer begin at its start.
    """

    __slots__ = (
        "_buffer",
        "_data",
        "_end",
        "_memory",
        "_owner",
        "_position",
        "is_paused",
        "max_frame_bytes",
        "waits_for_memory",
    )

    def __init__(self, memory: ReceiveMemory, owner: MemoryWaiter) -> None:
        self._memory = memory
        self._owner = owner
        self._buffer: FrameBuffer | None = None
        self._data = _NO_BYTES
        self._position = self._end = 0
        self.waits_for_memory = False
        self.is_paused = False
        """Whether the caller stopped reading."""
        self.max_frame_bytes: int | None = None
        """The limit on the size of a frame; None for the limit of all connections."""

    @property
    def has_bytes(self) -> bool:
        """Whether received bytes wait in a buffer."""
        return self._buffer is not None

    @property
    def has_frame(self) -> bool:
        """Whether `next_frame` would return a frame, or raise."""
        available = self._end - self._position
        if available < SIZE_BYTES:
            return False
        size: int = _read_size(self._data, self._position)[0]
        return available - SIZE_BYTES >= size or size > (self.max_frame_bytes or self._memory.max_frame_bytes)

    @property
    def is_full(self) -> bool:
        """Whether the last read filled its memory, so that the client probably has sent more."""
        return self._end == len(self._data)

    def get_buffer(self) -> memoryview:
        """The memory for the next bytes."""
        if self._buffer is None:
            return self._memory.scratch
        if len(self._data) > SCRATCH_BYTES:
            # End at the end of the frame, because bytes beyond it would have to be copied.
            needed = self._first_frame_bytes()
            if self._end < needed:
                return self._data[self._end : needed]
        return self._data[self._end :]

    def received(self, size: int) -> None:
        """Add the `size` bytes that were written to `get_buffer()`."""
        if self._buffer is None:
            self._data = self._memory.scratch
            self._end = size
        else:
            self._end += size

    def next_frame(self) -> memoryview | None:
        """The next whole frame, or None. Raises DecodeError if the next four bytes are not the size of a request."""
        start = self._position + SIZE_BYTES
        if start > self._end:
            return None
        (size,) = _read_size(self._data, self._position)
        largest = self.max_frame_bytes or self._memory.max_frame_bytes
        if not 0 <= size <= largest:
            raise DecodeError(_invalid_size(size, largest))
        end: int = start + size
        if end > self._end:
            return None
        self._position = end
        return self._data[start:end]

    def retain(self, least_bytes: int) -> bool:
        """Move the bytes that are not handled yet to a buffer of at least `least_bytes`; whether there are any.

        An empty buffer is released. A buffer from whose start nothing was handled stays as it is. Raises OSError if the
        system has no memory.
        """
        old, position, end = self._buffer, self._position, self._end
        if old is None and position == end:
            self._position = self._end = 0
            return False
        if old is not None and position == 0:
            return True
        rest = self._data[position:end]
        self._data, self._position, self._end = _NO_BYTES, 0, 0
        if old is not None:
            self._buffer = None
            self._memory.release(self._owner, old)
        if rest:
            self._move(rest, least_bytes)
        if old is not None:
            self._memory.recycle(old)
        return self._buffer is not None

    def reserve(self, *, may_grow: bool) -> bool:
        """Make sure that `get_buffer` has space; False if there is none, and nothing must be read.

        While a request is in progress (`may_grow` is False) the buffer stays as it is. Beyond the limit the owner waits
        in the queue of `ReceiveMemory`, and `waits_for_memory` is set until `memory_available` resets it. Raises
        OSError if the system has no memory.
        """
        buffer = self._buffer
        if buffer is None:
            return True
        if self.waits_for_memory:
            return False
        if not may_grow:
            return self._end < len(buffer)
        size = max(grown_capacity(len(buffer), self._end, self._first_frame_bytes()), LEAST_BUFFER_BYTES)
        if size > len(buffer):
            larger = self._memory.take_larger(self._owner, buffer, size)
            if larger is None:
                self.waits_for_memory = True
                return False
            data = memoryview(larger)
            data[: self._end] = self._data[: self._end]
            self._buffer, self._data = larger, data
        return True

    def clear(self) -> None:
        """Drop all received bytes."""
        self._position = self._end
        self.retain(0)

    def close(self) -> None:
        """Drop all received bytes, and the owner, which refers to this object: without the cycle both are freed."""
        self.clear()
        del self._owner

    def _first_frame_bytes(self) -> int:
        """Bytes of the first frame, its size included."""
        if self._end < SIZE_BYTES:
            return SIZE_BYTES
        return SIZE_BYTES + int(_read_size(self._data)[0])

    def _move(self, rest: memoryview, least_bytes: int) -> None:
        size = len(rest)
        needed = SIZE_BYTES + int(_read_size(rest)[0]) if size >= SIZE_BYTES else SIZE_BYTES
        capacity = max(frame_capacity(size, needed), 2 * size, least_bytes)
        if capacity > READ_AHEAD_BYTES and not self._memory.fits(capacity):
            capacity = max(size, least_bytes)  # it grows when `reserve` may do so
        buffer = self._memory.take(capacity)
        data = memoryview(buffer)
        data[:size] = rest
        self._buffer, self._data, self._end = buffer, data, size


def _invalid_size(size: int, largest: int) -> str:
    """Explain why these four bytes are not the size of a request: often the client uses another protocol."""
    start = size.to_bytes(4, "big", signed=True)
    if start.startswith(b"\x16\x03"):
        return "the client speaks TLS, this listener does not: set its security.protocol to PLAINTEXT"
    if start in (b"GET ", b"HEAD", b"POST", b"PUT ", b"PRI "):
        return "the client speaks HTTP, not Kafka's protocol"
    return f"Invalid receive (size = {size}{f' larger than {largest}' if size > largest else ''})"
