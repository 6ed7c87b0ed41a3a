"""Bytes that are still in their file: who sends them reads them piece by piece, and holds no more than a piece."""

from collections.abc import Iterable, Sized


class Unread(Sized):
    """Stands in an answer where its bytes would; `len` is how many are left to take."""

    __slots__ = ()

    def take(self, size: int) -> bytes | bytearray | memoryview:
        """The next `size` bytes, or as many as are left. Raises KafkaError where the file does not give them."""
        raise NotImplementedError


def joined(parts: Iterable[bytes | bytearray | memoryview | Unread]) -> bytes:
    """All parts of an answer as one, read now."""
    return b"".join(part.take(len(part)) if isinstance(part, Unread) else part for part in parts)
