"""Cuts the bytes that a client receives from its broker into responses; does no I/O.

The caller reads into `get_buffer`, reports the bytes with `received`, and then calls `next_response` until it returns
None. The broker's counterpart is `frame_reader`.

A response has a buffer of its own, because the caller may use it (and views of it) for any time. A small response is
copied out of the scratch buffer. Of a response larger than the scratch buffer, only the bytes of the first read are
copied. After a large response, the next one is received into a buffer of that size, so that mostly nothing is copied
and one read is enough.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Final

from ottla.network.buffers import FrameBuffers

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
# Of a larger response, the first read is a small part.
LARGEST_EXPECTED_BYTES: Final = 1024 * 1024 - SIZE_BYTES - 1
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
    """The received bytes of one connection: `_buffer[_position:_end]` is not returned yet."""

    __slots__ = (
        "_buffer",
        "_buffers",
        "_end",
        "_expected",
        "_filled",
        "_large",
        "_position",
        "_scratch",
        "largest_bytes",
    )

    def __init__(self) -> None:
        self.largest_bytes = LARGEST_FIRST_RESPONSE_BYTES
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        # The scratch buffer, or a buffer of the next response if that is expected to be large.
        self._buffer = self._scratch
        self._position = self._end = 0
        # The response that is being received, if it does not fit into the buffer; `_filled` bytes are there.
        self._large: memoryview | None = None
        self._filled = 0
        # The size of recent responses, if they are too large for the scratch buffer; otherwise 0.
        self._expected = 0
        self._buffers = FrameBuffers()

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: a byte more than the rest of the response, since a full buffer is read again."""
        if self._large is not None:
            return self._large[self._filled :]
        if self._expected and not self._end and self._buffer is self._scratch:
            size = SIZE_BYTES + self._expected + 1
            with suppress(OSError):  # Without memory for it, the size that arrives decides.
                self._buffer = memoryview(self._buffers.take(size))[:size]
        return self._buffer[self._end :]

    def received(self, size: int) -> None:
        """Add the `size` bytes that were written to `get_buffer()`."""
        if self._large is None:
            self._end += size
        else:
            self._filled += size

    def next_response(self) -> memoryview | None:
        """The next whole response without its size, or None. Raises ResponseSizeError and ResponseMemoryError."""
        if self._large is not None:
            return self._finish_large(self._large)
        buffer, position, filled = self._buffer, self._position, self._end
        start = position + SIZE_BYTES
        if start <= filled:
            (size,) = _read_size(buffer, position)
            if not SIZE_BYTES <= size <= self.largest_bytes:
                raise ResponseSizeError(size, bytes(buffer[position:filled]))
            end: int = start + size
            if end <= filled:
                self._position = end
                self._expect(size)
                return memoryview(bytes(buffer[start:end])) if size <= SCRATCH_BYTES else buffer[start:end]
            if end - position > len(buffer if position == 0 else self._scratch):
                self._start_large(size, buffer[start:filled])
                self._go_on(b"")
                return None
        if position:
            self._go_on(bytes(buffer[position:filled]))
        return None

    def _go_on(self, rest: bytes) -> None:
        """Continue with the bytes after the last response, which may still be in use, in the scratch buffer."""
        self._buffer = self._scratch
        self._position, self._end = 0, len(rest)
        self._scratch[: self._end] = rest

    def _expect(self, size: int) -> None:
        # A few small responses between large ones change little.
        expected = max(size, self._expected * 7 // 8)
        self._expected = expected if SCRATCH_BYTES < expected <= LARGEST_EXPECTED_BYTES else 0

    def _start_large(self, size: int, beginning: memoryview) -> None:
        try:
            self._large = large = memoryview(self._buffers.take(size + 1))[: size + 1]
        except OSError as error:
            raise ResponseMemoryError(size, error) from error
        self._filled = len(beginning)
        large[: self._filled] = beginning

    def _finish_large(self, large: memoryview) -> memoryview | None:
        size = len(large) - 1
        if self._filled < size:
            return None
        self._large = None
        self._go_on(bytes(large[size : self._filled]))
        self._expect(size)
        return large[:size]
