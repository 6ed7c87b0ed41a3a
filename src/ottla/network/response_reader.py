"""Cuts the bytes that a client receives from its broker into responses; does no I/O.

The caller reads into `get_buffer`, reports the bytes with `received`, and then calls `next_response` until it returns
None. The broker's counterpart is `frame_reader`.

A response has a buffer of its own, because the caller may use it (and views of it) for any time. A small response is
copied out of the scratch buffer. A response larger than the scratch buffer is received into its own buffer directly, so
that none of its bytes after the first read are copied.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.network.buffers import FrameBuffers

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
LARGEST_RESPONSE_BYTES: Final = 1024 * 1024 * 1024
# Until ApiVersions is answered the listener may not be Kafka; an HTTP or TLS response reads as a huge size.
LARGEST_FIRST_RESPONSE_BYTES: Final = 1024 * 1024
_read_size = struct.Struct(">i").unpack_from


class ResponseSizeError(Exception):
    """`data` begins with `size`, which cannot be the size of a response."""

    def __init__(self, size: int, data: bytes) -> None:
        super().__init__(f"Invalid response size {size}")
        self.size = size
        self.data = data


class ResponseMemoryError(Exception):
    """The system has no memory for a response of `size` bytes."""

    def __init__(self, size: int, error: OSError) -> None:
        super().__init__(f"No memory for a response of {size} bytes: {error}")
        self.size = size
        self.error = error


class ResponseReader:
    """The received bytes of one connection: `_scratch[_position:_end]` is not returned yet."""

    __slots__ = ("_buffers", "_end", "_filled", "_large", "_position", "_scratch", "largest_bytes")

    def __init__(self) -> None:
        self.largest_bytes = LARGEST_FIRST_RESPONSE_BYTES
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._position = self._end = 0
        # The response that is being received, if it does not fit into the scratch buffer; `_filled` bytes are there.
        self._large: memoryview | None = None
        self._filled = 0
        self._buffers = FrameBuffers()

    def get_buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._large is None:
            return self._scratch[self._end :]
        return self._large[self._filled :]

    def received(self, size: int) -> None:
        """Add the `size` bytes that were written to `get_buffer()`."""
        if self._large is None:
            self._end += size
        else:
            self._filled += size

    def next_response(self) -> memoryview | None:
        """The next whole response without its size, or None. Raises ResponseSizeError and ResponseMemoryError."""
        large = self._large
        if large is not None:
            if self._filled < len(large):
                return None
            self._large = None
            return large
        scratch, position, filled = self._scratch, self._position, self._end
        start = position + SIZE_BYTES
        if start <= filled:
            (size,) = _read_size(scratch, position)
            if not SIZE_BYTES <= size <= self.largest_bytes:
                raise ResponseSizeError(size, bytes(scratch[position:filled]))
            end: int = start + size
            if end <= filled:
                self._position = end
                return memoryview(bytes(scratch[start:end]))
            if end - position > SCRATCH_BYTES:
                self._start_large(size, scratch[start:filled])
                self._position = self._end = 0
                return None
        if position:
            rest = filled - position
            scratch[:rest] = bytes(scratch[position:filled])
            self._position, self._end = 0, rest
        return None

    def _start_large(self, size: int, beginning: memoryview) -> None:
        try:
            self._large = large = memoryview(self._buffers.take(size))[:size]
        except OSError as error:
            raise ResponseMemoryError(size, error) from error
        self._filled = len(beginning)
        large[: self._filled] = beginning
