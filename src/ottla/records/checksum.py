"""CRC-32C. The library is imported at the first checksum: its package reads its own metadata, in some 30 ms."""

from collections.abc import Callable

_compute: Callable[[bytes | bytearray | memoryview], int] | None = None


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C (Castagnoli) of `data`."""
    global _compute
    if _compute is None:
        from crc32c import crc32c as compute

        _compute = compute
    return _compute(data)
