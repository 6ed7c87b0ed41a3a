"""Bytes of a response that are still in their file. The sender reads them in pieces, to limit its memory."""

from collections.abc import Iterable, Sized


class Unread(Sized):
    """A placeholder for bytes in a response; `len` is the number of remaining bytes."""

    __slots__ = ()

    def take(self, size: int) -> bytes | bytearray | memoryview:
        """Read the next `size` bytes, or the remaining ones. Raises KafkaError if the file cannot be read."""
        raise NotImplementedError


def joined(parts: Iterable[bytes | bytearray | memoryview | Unread]) -> bytes:
    """Read and join all parts of a response."""
    return b"".join(part.take(len(part)) if isinstance(part, Unread) else part for part in parts)
