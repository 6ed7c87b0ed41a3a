"""The letters of one partition that were redriven, as the committed offset of a group and its metadata. No I/O.

The committed offset is the first letter that was not redriven. Filters leave letters in the middle, so the metadata has
the ranges of redriven offsets after it: `ottla.redrive:` and the base 85 text of compressed pairs of variable-length
numbers (the distance to the next range, and its length). A broker accepts 4096 bytes (offset.metadata.max.bytes).

So a letter is redriven once, with whatever filters. Offsets without a letter, such as transaction markers, count as
redriven: they join ranges.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

_MARK: Final = "ottla.redrive:"
MOST_BYTES: Final = 4096
# More bytes than any metadata that fits can hold: a commit of another program must not fill the memory.
_MOST_UNPACKED: Final = 1 << 20


class TooManyRanges(Exception):
    """The ranges do not fit into the metadata of an offset."""


class NotARedrive(Exception):
    """The metadata was not written by a redrive."""


class RedrivenOffsets:
    """The offsets of a partition that were redriven: all below `position`, and ranges after it."""

    def __init__(self, position: int, metadata: str = "") -> None:
        """Raises NotARedrive for metadata of another program."""
        self._starts = [0]
        self._ends = [position]
        for start, end in _parsed(position, metadata):
            self._starts.append(start)
            self._ends.append(end)

    @property
    def position(self) -> int:
        """The first offset that was not redriven."""
        return self._ends[0]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of redriven offsets after `position`, without their ends."""
        return list(zip(self._starts[1:], self._ends[1:], strict=True))

    def __contains__(self, offset: int) -> bool:
        return offset < self._ends[bisect_right(self._starts, offset) - 1]

    def add(self, start: int, end: int) -> None:
        """Add the offsets from `start` up to, but without, `end`."""
        if start >= end:
            return
        first = bisect_right(self._starts, start) - 1
        if self._ends[first] < start:
            first += 1
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def metadata(self) -> str:
        """Return the text to commit with `position`; empty without ranges. Raises TooManyRanges."""
        if not self.ranges:
            return ""
        numbers = bytearray()
        before = self.position
        for start, end in self.ranges:
            numbers += _varint(start - before) + _varint(end - start)
            before = end
        text = _MARK + base64.b85encode(zlib.compress(bytes(numbers), 9)).decode()
        if len(text) > MOST_BYTES:
            raise TooManyRanges(f"{len(self.ranges):,} ranges of redriven letters")
        return text


def _parsed(position: int, metadata: str) -> Iterator[tuple[int, int]]:
    if not metadata:
        return
    if not metadata.startswith(_MARK):
        raise NotARedrive(metadata[:40])
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(base64.b85decode(metadata.removeprefix(_MARK)), _MOST_UNPACKED)
        numbers = list(_numbers(data))
    except (ValueError, zlib.error) as error:
        raise NotARedrive(metadata[:40]) from error
    if not unpack.eof or len(numbers) % 2 or 0 in numbers:
        raise NotARedrive(metadata[:40])
    pairs = iter(numbers)
    for distance, length in zip(pairs, pairs, strict=True):
        yield position + distance, position + distance + length
        position += distance + length


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _numbers(data: Iterable[int]) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number of more than 63 bits")
    if shift:
        raise ValueError("the last number is cut")
