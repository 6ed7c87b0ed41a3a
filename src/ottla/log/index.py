"""Kafka's sparse indices: offset to position (8-byte entries) and timestamp to offset (12-byte entries).

An index has two lives. That of the *active* segment keeps its entries in memory and writes them to its file in
pieces and, at the latest, when the segment is sealed; after a crash it is rebuilt from the log. That of a *sealed*
segment keeps nothing in memory: a lookup opens the file and bisects with a few reads, so that a broker with many
segments neither reads nor holds their indices. A file that Kafka preallocated and did not trim (it crashed) ends in
zero entries, which are not counted.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from struct import Struct
from sys import byteorder
from typing import TypeVar

from ottla.log.files import Files

T = TypeVar("T")

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
# What an index that is not in memory holds; never changed.
_NOTHING = array("q")
# Entries of the active segment are written out in pieces of this many, so that sealing it writes little.
_PIECE = 512


class _IndexFile:
    """The file of one index, opened for one lookup at a time."""

    __slots__ = ("entry", "files", "path")

    def __init__(self, files: Files, path: str, entry: Struct) -> None:
        self.files = files
        self.path = path
        self.entry = entry

    def count(self, fd: int) -> int:
        """Entries before the zeros of a preallocated tail."""
        size = self.entry.size
        total = self.files.size(self.path) // size
        if total < 2 or any(self.files.pread(fd, size, (total - 1) * size)):
            return total
        low, high = 0, total - 1  # entry `high` is zeros; the first entry may rightly look like zeros
        while low < high:
            middle = (low + high) // 2
            if any(self.files.pread(fd, size, middle * size)):
                low = middle + 1
            else:
                high = middle
        return low

    def at(self, fd: int, index: int) -> tuple[int, int]:
        """One entry."""
        data = self.files.pread(fd, self.entry.size, index * self.entry.size)
        if len(data) < self.entry.size:
            raise CorruptIndexError(f"{self.path} ends before entry {index}")
        first, second = self.entry.unpack(data)
        return first, second

    def floor(self, fd: int, key: int, field: int) -> tuple[int, int] | None:
        """The last entry whose `field` is not above `key`."""
        low, high = 0, self.count(fd)
        found = None
        while low < high:
            middle = (low + high) // 2
            entry = self.at(fd, middle)
            if entry[field] <= key:
                found = entry
                low = middle + 1
            else:
                high = middle
        return found


class CorruptIndexError(Exception):
    """An index says what cannot be; it has to be rebuilt from the log."""


class OffsetIndex:
    """Offset of a batch's last record -> position of that batch; the offset is stored relative to the base offset."""

    __slots__ = ("_offsets", "_positions", "_written", "base_offset", "file", "in_memory", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.file = _IndexFile(files, path, _OFFSET_ENTRY)
        self.path = path
        self.base_offset = base_offset
        self.in_memory = False
        self._offsets = _NOTHING
        self._positions = _NOTHING
        self._written = 0

    def move(self, path: str) -> None:
        """The file has another name now."""
        self.path = self.file.path = path

    def start(self, *, fresh: bool = False) -> None:
        """Begin empty in memory, with an empty file; where there is none yet (`fresh`), the first write creates it."""
        if not fresh:
            self.file.files.write(self.path, b"")
        self.in_memory = True
        self._offsets = array("q")
        self._positions = array("q")
        self._written = 0

    def load(self) -> None:
        """Take the file's entries into memory, to append to them; zeros at the end are cut off."""
        files = self.file.files
        fd = files.open(self.path)
        try:
            count = self.file.count(fd)
            data = files.pread(fd, count * 8, 0)
            if files.size(self.path) != count * 8:
                files.truncate(fd, count * 8)
        finally:
            files.close(fd)
        self._offsets = array("q", (entry[0] for entry in _OFFSET_ENTRY.iter_unpack(data)))
        self._positions = array("q", (entry[1] for entry in _OFFSET_ENTRY.iter_unpack(data)))
        self._written = count
        self.in_memory = True
        if any(a >= b for a, b in zip(self._offsets, self._offsets[1:], strict=False)) or any(
            a >= b for a, b in zip(self._positions, self._positions[1:], strict=False)
        ):
            raise CorruptIndexError(f"{self.path} does not rise")

    @property
    def entries(self) -> int:
        """How many entries there are."""
        if self.in_memory:
            return len(self._offsets)
        return self._look(self.file.count)

    def append(self, offset: int, position: int) -> None:
        """Add an entry above all others."""
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)
        if len(self._offsets) - self._written >= _PIECE:
            self.write_pending()

    def extend(self, relative_offsets: "array[int]", positions: "array[int]") -> None:
        """Add entries above all others, as a recovery finds them."""
        self._offsets += relative_offsets
        self._positions += positions
        if len(self._offsets) - self._written >= _PIECE:
            self.write_pending()

    def lookup(self, offset: int) -> int:
        """Position of a batch at or before the one that holds `offset`; 0 if no entry helps."""
        relative = offset - self.base_offset
        if self.in_memory:
            i = bisect_right(self._offsets, relative) - 1
            return self._positions[i] if i >= 0 else 0
        found = self._look(lambda fd: self.file.floor(fd, relative, 0))
        return found[1] if found else 0

    def floor_position(self, limit: int) -> int:
        """The greatest known start of a batch that is not beyond `limit`."""
        if self.in_memory:
            i = bisect_right(self._positions, limit) - 1
            return self._positions[i] if i >= 0 else 0
        found = self._look(lambda fd: self.file.floor(fd, limit, 1))
        return found[1] if found else 0

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; the base offset and 0 without one."""
        if self.in_memory:
            if self._offsets:
                return self.base_offset + self._offsets[-1], self._positions[-1]
            return self.base_offset, 0
        found = self._look(lambda fd: self.file.at(fd, count - 1) if (count := self.file.count(fd)) else None)
        return (self.base_offset + found[0], found[1]) if found else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Forget entries of `offset` and above. In memory only; `write_pending` brings the file in line."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del self._offsets[keep:], self._positions[keep:]
        self._written = 0 if keep < self._written else self._written

    def write_pending(self) -> None:
        """Write what the file lacks."""
        words = array("i", bytes(8 * (len(self._offsets) - self._written)))
        words[::2] = array("i", self._offsets[self._written :])
        words[1::2] = array("i", self._positions[self._written :])
        data = _big_endian(words).tobytes()
        _write_entries(self.file.files, self.path, data, self._written * 8)
        self._written = len(self._offsets)

    def seal(self) -> None:
        """Write the rest and let go of the memory."""
        if self.in_memory:
            self.write_pending()
            self.in_memory = False
            self._offsets = _NOTHING
            self._positions = _NOTHING

    def _look(self, look: Callable[[int], T]) -> T:
        return _with_file(self.file, look)


class TimeIndex:
    """Timestamp -> offset: every record with a greater timestamp lies after that offset. Both rise."""

    __slots__ = ("_offsets", "_timestamps", "_written", "base_offset", "file", "in_memory", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.file = _IndexFile(files, path, _TIME_ENTRY)
        self.path = path
        self.base_offset = base_offset
        self.in_memory = False
        self._timestamps = _NOTHING
        self._offsets = _NOTHING
        self._written = 0

    def move(self, path: str) -> None:
        """The file has another name now."""
        self.path = self.file.path = path

    def start(self, *, fresh: bool = False) -> None:
        """Begin empty in memory, with an empty file; where there is none yet (`fresh`), the first write creates it."""
        if not fresh:
            self.file.files.write(self.path, b"")
        self.in_memory = True
        self._timestamps = array("q")
        self._offsets = array("q")
        self._written = 0

    def load(self) -> None:
        """Take the file's entries into memory, to append to them; zeros at the end are cut off."""
        files = self.file.files
        fd = files.open(self.path)
        try:
            count = self.file.count(fd)
            data = files.pread(fd, count * 12, 0)
            if files.size(self.path) != count * 12:
                files.truncate(fd, count * 12)
        finally:
            files.close(fd)
        self._timestamps = array("q", (entry[0] for entry in _TIME_ENTRY.iter_unpack(data)))
        self._offsets = array("q", (entry[1] for entry in _TIME_ENTRY.iter_unpack(data)))
        self._written = count
        self.in_memory = True
        if any(a >= b for a, b in zip(self._timestamps, self._timestamps[1:], strict=False)):
            raise CorruptIndexError(f"{self.path} does not rise")

    @property
    def entries(self) -> int:
        """How many entries there are."""
        if self.in_memory:
            return len(self._timestamps)
        return self._look(self.file.count)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is above all others."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self.base_offset)
            if len(self._timestamps) - self._written >= _PIECE:
                self.write_pending()

    def extend(self, timestamps: "array[int]", relative_offsets: "array[int]") -> None:
        """Add entries above all others, as a recovery finds them."""
        self._timestamps += timestamps
        self._offsets += relative_offsets
        if len(self._timestamps) - self._written >= _PIECE:
            self.write_pending()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry not above `timestamp`, as (timestamp, offset); (-1, base offset) without one."""
        if self.in_memory:
            i = bisect_right(self._timestamps, timestamp) - 1
            if i < 0:
                return -1, self.base_offset
            return self._timestamps[i], self.base_offset + self._offsets[i]
        found = self._look(lambda fd: self.file.floor(fd, timestamp, 0))
        return (found[0], self.base_offset + found[1]) if found else (-1, self.base_offset)

    def last(self) -> tuple[int, int]:
        """Greatest timestamp and its offset; (-1, base offset) without an entry."""
        if self.in_memory:
            if self._timestamps:
                return self._timestamps[-1], self.base_offset + self._offsets[-1]
            return -1, self.base_offset
        found = self._look(lambda fd: self.file.at(fd, count - 1) if (count := self.file.count(fd)) else None)
        return (found[0], self.base_offset + found[1]) if found else (-1, self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Forget entries of `offset` and above. In memory only; `write_pending` brings the file in line."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del self._offsets[keep:], self._timestamps[keep:]
        self._written = 0 if keep < self._written else self._written

    def write_pending(self) -> None:
        """Write what the file lacks."""
        halves = array("i", _big_endian(self._timestamps[self._written :]).tobytes())
        words = array("i", bytes(12 * (len(self._timestamps) - self._written)))
        words[::3] = halves[::2]
        words[1::3] = halves[1::2]
        words[2::3] = _big_endian(array("i", self._offsets[self._written :]))
        data = words.tobytes()
        _write_entries(self.file.files, self.path, data, self._written * 12)
        self._written = len(self._timestamps)

    def seal(self) -> None:
        """Write the rest and let go of the memory."""
        if self.in_memory:
            self.write_pending()
            self.in_memory = False
            self._timestamps = _NOTHING
            self._offsets = _NOTHING

    def _look(self, look: Callable[[int], T]) -> T:
        return _with_file(self.file, look)


def _big_endian(numbers: "array[int]") -> "array[int]":
    """As they are in a file; the array is changed. A recovery writes millions of entries: not one by one."""
    if byteorder == "little":
        numbers.byteswap()
    return numbers


def _with_file(file: _IndexFile, look: Callable[[int], T]) -> T:
    fd = file.files.open(file.path, read_only=True)
    try:
        return look(fd)
    finally:
        file.files.close(fd)


def _write_entries(files: Files, path: str, data: bytes, position: int) -> None:
    if not data and position:
        return
    fd = files.open(path, create=True)
    try:
        if data:
            files.pwrite(fd, data, position)
        files.truncate(fd, position + len(data))
    finally:
        files.close(fd)
