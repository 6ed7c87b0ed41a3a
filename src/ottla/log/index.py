"""Kafka's sparse indices: offset to position (8-byte entries) and timestamp to offset (12-byte entries).

The index of the *active* segment has its entries in memory. It writes them to its file in pieces, the rest when the
segment is sealed; after a crash it is rebuilt from the log. The index of a *sealed* segment has nothing in memory: a
lookup opens the file and bisects it with a few reads, so that a broker with many segments neither reads nor retains
their indices. If Kafka crashed before it trimmed a preallocated file, the file ends in zero entries, which are ignored.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from operator import itemgetter, lt
from struct import Struct
from sys import byteorder
from typing import ClassVar, TypeVar

from ottla.common.shortage import is_shortage
from ottla.log.files import Files

T = TypeVar("T")

# The entries of an index that is not in memory; never changed.
_NOTHING = array("q")
# The active segment writes its entries in pieces of this size, so that sealing it writes little.
_PIECE = 512
# Bytes of one read: the last steps of a bisection need no system call.
_BLOCK_BYTES = 4096
_ZEROS = (0, 0)


class _Rows:
    """The entries of an open index file as a sequence for `bisect`, without a preallocated tail."""

    __slots__ = ("_block", "_first", "_in_block", "count", "entry", "fd", "files", "path")

    def __init__(self, files: Files, fd: int, path: str, entry: Struct) -> None:
        self.files = files
        self.fd = fd
        self.path = path
        self.entry = entry
        self._in_block = _BLOCK_BYTES // entry.size
        self._first = -1  # the first entry of the block
        self._block = b""
        self.count = files.length(fd) // entry.size
        if self.count > 1 and self[self.count - 1] == _ZEROS:  # zeros are valid in the first entry
            self.count = bisect_left(range(self.count - 1), True, key=lambda i: self[i] == _ZEROS)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, int]:
        size = self.entry.size
        at = index % self._in_block
        if self._first != index - at:
            self._first = index - at
            self._block = self.files.pread(self.fd, self._in_block * size, self._first * size)
        if len(self._block) < (at + 1) * size:
            raise CorruptIndexError(f"{self.path} ends before entry {index}")
        first, second = self.entry.unpack_from(self._block, at * size)
        if first < 0 or second < 0:
            raise CorruptIndexError(f"{self.path} has an invalid entry {index}")
        return first, second

    def last(self) -> tuple[int, int] | None:
        """The last entry, or None."""
        return self[self.count - 1] if self.count else None

    def floor(self, key: int, field: int) -> tuple[int, int] | None:
        """The last entry whose `field` is not above `key`."""
        last = self.last()
        if last is None or last[field] <= key:
            return last
        i = bisect_right(self, key, hi=self.count - 1, key=itemgetter(field))
        return self[i - 1] if i else None


class CorruptIndexError(Exception):
    """An index is corrupt and must be rebuilt from the log."""


class _Index:
    """Entries of a key and a value, which both rise. Offsets are stored relative to the base offset."""

    __slots__ = ("_keys", "_values", "_written", "base_offset", "files", "in_memory", "path")

    entry: ClassVar[Struct]

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self.files = files
        self.path = path
        self.base_offset = base_offset
        self.in_memory = False
        self._keys = _NOTHING
        self._values = _NOTHING
        self._written = 0

    def start(self, *, fresh: bool = False) -> None:
        """Start empty in memory, with an empty file; if there is no file (`fresh`), the first write creates it."""
        if not fresh:
            self.files.write(self.path, b"")
        self.in_memory = True
        self._keys = array("q")
        self._values = array("q")
        self._written = 0

    def load(self) -> None:
        """Load the file's entries into memory, for appending; zeros at the end are cut off."""
        files, entry = self.files, self.entry
        fd = files.open(self.path)
        try:
            count = len(_Rows(files, fd, self.path, entry))
            size = count * entry.size
            data = files.pread(fd, size, 0)
            if files.length(fd) != size:
                files.truncate(fd, size)
        finally:
            files.close(fd)
        self._keys = array("q", (key for key, _ in entry.iter_unpack(data)))
        self._values = array("q", (value for _, value in entry.iter_unpack(data)))
        self._written = count
        self.in_memory = True
        if not (_rises(self._keys) and _rises(self._values)):
            raise CorruptIndexError(f"{self.path} does not rise")

    @property
    def entries(self) -> int:
        """Number of entries."""
        if self.in_memory:
            return len(self._keys)
        return self._look(len)

    def extend(self, keys: "array[int]", values: "array[int]") -> None:
        """Add the entries that a recovery collected; they are above all others, and offsets are relative."""
        self._keys += keys
        self._values += values
        if len(self._keys) - self._written >= _PIECE:
            self._write_piece()

    def _write_piece(self) -> None:
        """Write the pending entries. In a shortage they stay in memory."""
        try:
            self.write_pending()
        except OSError as error:
            if not is_shortage(error):
                raise

    def write_pending(self) -> None:
        """Write the entries that the file lacks; all entries if the file was truncated or deleted meanwhile."""
        if self._written and self._written == len(self._keys):
            return
        files = self.files
        fd = files.open(self.path, create=True)
        try:
            if files.length(fd) < self._written * self.entry.size:
                self._written = 0
            position = self._written * self.entry.size
            data = self._packed(self._keys[self._written :], self._values[self._written :])
            if data:
                files.pwrite(fd, data, position)
            files.truncate(fd, position + len(data))
        finally:
            files.close(fd)
        self._written = len(self._keys)

    def seal(self) -> None:
        """Write the pending entries and release the memory."""
        if self.in_memory:
            self.write_pending()
            self.release()

    def release(self) -> None:
        """Release the memory; pending entries are lost."""
        self.in_memory = False
        self._keys = _NOTHING
        self._values = _NOTHING

    def _packed(self, keys: "array[int]", values: "array[int]") -> bytes:
        """Encode entries; the arrays are changed. Recovery writes millions, so they are not encoded one by one."""
        raise NotImplementedError

    def _floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is not above `key`."""
        if self.in_memory:
            i = bisect_right(self._keys, key) - 1
            return (self._keys[i], self._values[i]) if i >= 0 else None
        return self._look(lambda rows: rows.floor(key, 0))

    def _last(self) -> tuple[int, int] | None:
        if self.in_memory:
            return (self._keys[-1], self._values[-1]) if self._keys else None
        return self._look(_Rows.last)

    def _forget(self, keep: int) -> None:
        del self._keys[keep:], self._values[keep:]
        self._written = 0 if keep < self._written else self._written

    def _look(self, look: Callable[[_Rows], T]) -> T:
        try:
            fd = self.files.open(self.path, read_only=True)
        except FileNotFoundError as error:
            raise CorruptIndexError(f"{self.path} is missing") from error
        try:
            return look(_Rows(self.files, fd, self.path, self.entry))
        finally:
            self.files.close(fd)


class OffsetIndex(_Index):
    """Maps the offset of a batch's last record to the position of the batch."""

    __slots__ = ()

    entry = Struct(">ii")

    def append(self, offset: int, position: int) -> None:
        """Add an entry above all others."""
        keys = self._keys
        keys.append(offset - self.base_offset)
        self._values.append(position)
        if len(keys) - self._written >= _PIECE:
            self._write_piece()

    def lookup(self, offset: int) -> int:
        """Position of the batch that holds `offset`, or of an earlier one; 0 if no entry is below it."""
        found = self._floor(offset - self.base_offset)
        return found[1] if found else 0

    def floor_position(self, limit: int) -> int:
        """The greatest indexed batch position that is not above `limit`."""
        if self.in_memory:
            i = bisect_right(self._values, limit) - 1
            return self._values[i] if i >= 0 else 0
        found = self._look(lambda rows: rows.floor(limit, 1))
        return found[1] if found else 0

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; the base offset and 0 without one."""
        offset, position = self._last() or (0, 0)
        return self.base_offset + offset, position

    def truncate_to(self, offset: int) -> None:
        """Remove entries of `offset` and above from memory; `write_pending` updates the file."""
        self._forget(bisect_left(self._keys, offset - self.base_offset))

    def _packed(self, keys: "array[int]", values: "array[int]") -> bytes:
        words = array("i", bytes(8 * len(keys)))
        words[::2] = array("i", keys)
        words[1::2] = array("i", values)
        return _big_endian(words).tobytes()


class TimeIndex(_Index):
    """Maps a timestamp to an offset: every record with a greater timestamp comes after that offset."""

    __slots__ = ()

    entry = Struct(">qi")

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is above all others."""
        keys = self._keys
        if timestamp > (keys[-1] if keys else -1):
            keys.append(timestamp)
            self._values.append(offset - self.base_offset)
            if len(keys) - self._written >= _PIECE:
                self._write_piece()

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry not above `timestamp`, as (timestamp, offset); (-1, base offset) without one."""
        found, offset = self._floor(timestamp) or (-1, 0)
        return found, self.base_offset + offset

    def last(self) -> tuple[int, int]:
        """Greatest timestamp and its offset; (-1, base offset) without an entry."""
        timestamp, offset = self._last() or (-1, 0)
        return timestamp, self.base_offset + offset

    def truncate_to(self, offset: int) -> None:
        """Remove entries of `offset` and above from memory; `write_pending` updates the file."""
        self._forget(bisect_left(self._values, offset - self.base_offset))

    def _packed(self, keys: "array[int]", values: "array[int]") -> bytes:
        halves = array("i", _big_endian(keys).tobytes())
        words = array("i", bytes(12 * len(keys)))
        words[::3] = halves[::2]
        words[1::3] = halves[1::2]
        words[2::3] = _big_endian(array("i", values))
        return words.tobytes()


def _big_endian(numbers: "array[int]") -> "array[int]":
    """Convert to the byte order of the file, in place."""
    if byteorder == "little":
        numbers.byteswap()
    return numbers


def _rises(numbers: "array[int]") -> bool:
    return not numbers or (numbers[0] >= 0 and all(map(lt, numbers, numbers[1:])))
