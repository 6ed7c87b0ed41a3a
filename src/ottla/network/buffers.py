"""Receive buffers that are used again: a fresh megabyte costs more to zero and map than to fill from the socket."""

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
