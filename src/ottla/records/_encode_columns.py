# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Encodes columns into record batches. The columns are given as Arrow's buffers; Arrow itself is not needed.

One source for C and Python: Cython compiles this file with the types of `_encode_columns.pxd`. `column_kernels` exports
it. `Rows` holds the buffers and checks once that all offsets are within them, so `RowEncoder` uses them unchecked. The
encoder chooses each row's partition and writes the row directly into that partition's batch. Rows keep their order
within a partition. A call holds the GIL for about one batch.
"""

from __future__ import annotations

from typing import Any, TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

if not cython.compiled:
    from ottla.records._record_reader import BufferView, view_of
    from ottla.records._record_writer import hash_of
    from ottla.records.record_fields import OpenBatch

    Bytes: TypeAlias = memoryview
    Memory: TypeAlias = bytearray
    # A bytes-like object; a pyarrow.Buffer is one.
    Buffer: TypeAlias = Any
    # In each tuple, `first` is the position of the first row. A validity bitmap (bit set: not null) may be None.
    # Validity, offsets, data, first, whether offsets have 64 bits.
    Strings: TypeAlias = tuple[Buffer | None, Buffer, Buffer | None, int, bool]
    # Validity, numbers, first.
    Numbers: TypeAlias = tuple[Buffer | None, Buffer, int]
    # Validity, offsets, first, whether offsets have 64 bits, names, values, number of names.
    HeaderLists: TypeAlias = tuple[Buffer | None, Buffer, int, bool, Strings | None, Strings | None, int]
    # 61 bytes for a header and the records, number of records, base and max timestamp, last offset delta.
    Encoded: TypeAlias = tuple[bytearray, int, int, int, int]

_HEADER_SIZE = 61
# The maximum size of a record without key, value and headers, and of a header without name and value.
_RECORD_OVERHEAD = 21
_PAIR_OVERHEAD = 10


def _corrupt(what: str) -> ValueError:
    return ValueError(f"The columns are corrupt: {what}")


# `_record_writer` has the next three functions too. The C compiler inlines only functions of the same file, and a call
# for each number would add a fifth to the time.


def _size_of(value: int) -> int:
    """Return the size of a zigzag number in bytes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


def _write_number(target: Memory, position: int, value: int) -> int:
    """Write a zigzag number; return the position after it."""
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        target[position] = rest & 0x7F | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1


def _size_of_field(size: int) -> int:
    """Return the size of a field with its length prefix; a negative `size` is null."""
    return 1 if size < 0 else _size_of(size) + size


class StringColumn:
    """A column of byte strings with offsets of 32 bits (`narrow`) or 64 bits (`wide`); without offsets, all is null.

    Row 0 is at `first` in `validity`, and at 0 in the offsets. `has_nulls` is true if a row may be null. It is the only
    field that most rows need besides their offsets.
    """

    has_offsets: bool
    is_wide: bool
    has_nulls: bool
    validity: Bytes
    narrow: Bytes
    wide: Bytes
    data: Bytes
    first: int


def _is_set(bits: Bytes, index: int) -> bool:
    return bits[index >> 3] >> (index & 7) & 1 != 0


def _start_of(column: StringColumn, row: int) -> int:
    """Return where a row starts, which is also where the previous row ends."""
    return column.wide[row] if column.is_wide else column.narrow[row]


def _size_at(column: StringColumn, row: int) -> int:
    """Return the size of a row in bytes, or -1 if it is null."""
    if column.has_nulls and not (column.has_offsets and _is_set(column.validity, column.first + row)):
        return -1
    return _start_of(column, row + 1) - _start_of(column, row)


class NumberColumn:
    """A column of integers of 32 or of 64 bits. Row 0 is at `first` in the validity and the integers."""

    exists: bool
    has_nulls: bool
    validity: Bytes
    int32s: Bytes
    int64s: Bytes
    first: int


def _has_number(column: NumberColumn, row: int) -> bool:
    """Whether a row has a number: the column exists, and the row is not null."""
    if not column.exists:
        return False
    return not column.has_nulls or _is_set(column.validity, column.first + row)


def _check_ascent(column: StringColumn, start: int, end: int, limit: int) -> None:
    """Raise ValueError unless the offsets ascend and lie between 0 and `limit`."""
    fits = _start_of(column, start) >= 0 and _start_of(column, end) <= limit
    for row in range(start, end):
        fits &= _start_of(column, row) <= _start_of(column, row + 1)
    if not fits:
        raise _corrupt("offsets that do not ascend within the data")


def _write_field(target: Memory, position: int, data: Bytes, start: int, size: int) -> int:
    """Write bytes with their length; a negative `size` is null. Return the position after them."""
    if size < 0:
        target[position] = 1
        return position + 1
    position = _write_number(target, position, size)
    if size:
        if cython.compiled:
            memcpy(target + position, data + start, size)
        else:
            target[position : position + size] = data[start : start + size]
    return position + size


def _write_row(target: Memory, position: int, column: StringColumn, row: int) -> int:
    """Write a row of a column with its length; return the position after it."""
    size = _size_at(column, row)
    start = _start_of(column, row) if size > 0 else 0
    return _write_field(target, position, column.data, start, size)


class Rows:
    """Columns of `count` rows: partitions are int32, timestamps int64 in ms; names of headers are UTF-8.

    The buffers are held and must not change. Raises ValueError for offsets outside the buffers, for buffers that are
    too short, and for a header without a name. `largest` is an upper bound of a row's size as a record. `earliest` is
    the earliest timestamp if it is negative, otherwise 0.
    """

    largest: int
    earliest: int
    count: int
    # An upper bound of the size of all rows as records.
    size: int
    views: list[BufferView]
    keys: StringColumn
    values: StringColumn
    has_headers: bool
    # Offsets into `names` and `header_values`, without data of their own.
    lists: StringColumn
    names: StringColumn
    header_values: StringColumn
    partitions: NumberColumn
    timestamps: NumberColumn

    def __init__(
        self,
        count: int,
        key: Strings | None,
        value: Strings | None,
        partition: Numbers | None,
        timestamp: Numbers | None,
        headers: HeaderLists | None,
    ) -> None:
        if count < 0:
            raise ValueError(f"{count} rows cannot be encoded")
        self.count = count
        self.size = 0
        self.views = []
        self.keys = self._strings_of(key, 0, count)
        self.values = self._strings_of(value, 0, count)
        self.has_headers = False
        self.lists = self.names = self.header_values = self._strings_of(None, 0, 0)
        if headers is not None and count:
            self._take_headers(headers)
        self.partitions = self._numbers_of(partition, 4)
        self.timestamps = self._numbers_of(timestamp, 8)
        self._find_earliest()
        self._measure()

    def _hold(self, buffer: Buffer) -> BufferView:
        view = view_of(buffer)
        self.views.append(view)
        return view

    def _bits(self, buffer: Buffer, last: int) -> Bytes:
        """Hold a bitmap, which must have at least `last` bits."""
        view = self._hold(buffer)
        if view.size < (last + 7) >> 3:
            raise _corrupt("a bitmap that is too short")
        return view.data

    def _numbers(self, buffer: Buffer, last: int, width: int) -> Bytes:
        """Hold a buffer, which must have at least `last` numbers of `width` bytes."""
        view = self._hold(buffer)
        if view.size // width < last:
            raise _corrupt("a buffer of numbers that is too short")
        if cython.compiled:
            return view.data
        return view.data[: view.size // width * width].cast("i" if width == 4 else "q")

    def _offsets_of(
        self, validity: Buffer | None, offsets: Buffer, first: int, is_wide: bool, count: int
    ) -> StringColumn:
        column = StringColumn()
        if first < 0:
            raise _corrupt("a negative offset")
        column.first = first
        column.is_wide = is_wide
        column.has_offsets = count > 0
        column.has_nulls = count > 0 and validity is not None
        if column.has_nulls:
            column.validity = self._bits(validity, first + count)
        if count:
            numbers = self._numbers(offsets, first + count + 1, 8 if is_wide else 4)
            if cython.compiled:
                column.narrow = cython.cast(Int32s, numbers) + first
                column.wide = cython.cast(Int64s, numbers) + first
            else:
                column.narrow = column.wide = numbers[first:]
        return column

    def _strings_of(self, buffers: Strings | None, start: int, end: int) -> StringColumn:
        """Hold a column and check its rows from `start` to `end`, which are the rows that will be read."""
        if buffers is None:
            column = StringColumn()
            column.has_offsets = False
            column.has_nulls = True
            column.data = self._hold(b"").data
            return column
        validity, offsets, data, first, is_wide = buffers
        column = self._offsets_of(validity, offsets, first, is_wide, end)
        if end:
            view = self._hold(b"" if data is None else data)
            column.data = view.data
            _check_ascent(column, start, end, view.size)
        return column

    def _take_headers(self, headers: HeaderLists) -> None:
        validity, offsets, first, is_wide, names, values, pairs = headers
        self.lists = self._offsets_of(validity, offsets, first, is_wide, self.count)
        _check_ascent(self.lists, 0, self.count, pairs)
        start = _start_of(self.lists, 0)
        end = _start_of(self.lists, self.count)
        self.names = self._strings_of(names, start, end)
        self.header_values = self._strings_of(values, start, end)
        self.has_headers = True
        if self.names.has_nulls:
            self._check_names()

    def _check_names(self) -> None:
        for row in range(self.count):
            if _size_at(self.lists, row) > 0:
                for index in range(_start_of(self.lists, row), _start_of(self.lists, row + 1)):
                    if _size_at(self.names, index) < 0:
                        raise ValueError("The column 'headers' has a header without a name")

    def _numbers_of(self, buffers: Numbers | None, width: int) -> NumberColumn:
        """Hold a column of numbers of `width` bytes."""
        column = NumberColumn()
        column.exists = buffers is not None and self.count > 0
        column.has_nulls = False
        if buffers is not None and self.count > 0:
            validity, numbers, first = buffers
            last = first + self.count
            column.first = first
            if validity is not None:
                column.has_nulls = True
                column.validity = self._bits(validity, last)
            if cython.compiled:
                column.int32s = cython.cast(Int32s, self._numbers(numbers, last, width))
                column.int64s = cython.cast(Int64s, column.int32s)
            else:
                column.int32s = column.int64s = self._numbers(numbers, last, width)
        return column

    def _find_earliest(self) -> None:
        """Fill in `earliest`."""
        earliest = 0
        timestamps = self.timestamps
        for row in range(self.count):
            if _has_number(timestamps, row):
                earliest = min(earliest, timestamps.int64s[timestamps.first + row])
        self.earliest = earliest

    def _measure(self) -> None:
        """Fill in `size` and `largest`."""
        largest = 0
        keys = self.keys
        values = self.values
        for row in range(self.count):
            size = _RECORD_OVERHEAD + max(0, _size_at(keys, row)) + max(0, _size_at(values, row))
            if self.has_headers:
                size += self._most_header_bytes(row)
            self.size += size
            largest = max(largest, size)
        self.largest = largest

    def _most_header_bytes(self, row: int) -> int:
        values = self.header_values
        size = 0
        if _size_at(self.lists, row) > 0:
            start = _start_of(self.lists, row)
            end = _start_of(self.lists, row + 1)
            size = (end - start) * _PAIR_OVERHEAD + _start_of(self.names, end) - _start_of(self.names, start)
            for index in range(start, end):
                size += max(0, _size_at(values, index))
        return size


# The columns are arguments because Cython counts a reference to each attribute of `rows` that it passes on.


def _size_of_headers(lists: StringColumn, names: StringColumn, values: StringColumn, row: int) -> int:
    """Return the size of a row's headers with their count in bytes."""
    if _size_at(lists, row) <= 0:
        return 1
    start = _start_of(lists, row)
    end = _start_of(lists, row + 1)
    size = _size_of(end - start)
    for index in range(start, end):
        size += _size_of_field(_size_at(names, index)) + _size_of_field(_size_at(values, index))
    return size


def _write_headers(
    target: Memory, position: int, lists: StringColumn, names: StringColumn, values: StringColumn, row: int
) -> None:
    if _size_at(lists, row) <= 0:
        target[position] = 0
    else:
        start = _start_of(lists, row)
        end = _start_of(lists, row + 1)
        position = _write_number(target, position, end - start)
        for index in range(start, end):
            position = _write_row(target, position, names, index)
            position = _write_row(target, position, values, index)


def _check_after(after: list[int] | None, partitions: int) -> list[int]:
    if after is None:
        return [(partition + 1) % partitions for partition in range(partitions)]
    if len(after) != partitions or not 0 <= min(after) <= max(after) < partitions:
        raise ValueError(f"`after` must have a partition for each of {partitions} partitions, not {after}")
    return list(after)


class RowEncoder:
    """Encodes rows into batches for the partitions of one topic.

    A row goes to the partition that it names, or else that murmur2 of its key selects. Rows with neither go to the
    partition `sticky` until its batch is full, and then to `after[partition]`, by default the next one. A batch takes
    at most `batch_size` bytes of records, or one larger record. Once the batches that are not full have more than
    `room` bytes together, all of them are returned. A row without a timestamp gets `now_ms`; no timestamp may be
    negative.
    """

    partitions: int
    batch_size: int
    room: int
    now_ms: int
    sticky: int
    after: list[int]
    # The batch of each partition (a C array in compiled code), and its memory.
    opened: list[OpenBatch]
    contents: list[Any]
    rows: Rows | None
    # The next row, the bytes in batches that are not full, and the expected size of a new batch.
    row: int
    waiting: int
    likely: int

    def __init__(
        self, partitions: int, batch_size: int, room: int, now_ms: int, sticky: int, after: list[int] | None = None
    ) -> None:
        if partitions < 1 or not 0 <= sticky < partitions:
            raise ValueError(f"The sticky partition {sticky} is not among {partitions} partitions")
        if cython.compiled:
            if self.opened != cython.NULL:
                raise ValueError("A RowEncoder cannot be initialized twice")
            self.opened = cython.cast(OpenPointer, PyMem_Calloc(partitions, cython.sizeof(OpenBatch)))
            if self.opened == cython.NULL:
                raise MemoryError
        else:
            self.opened = [OpenBatch() for _ in range(partitions)]
        self.contents = [None] * partitions
        self.partitions = partitions
        self.batch_size = batch_size
        self.room = room
        self.now_ms = now_ms
        self.sticky = sticky
        self.after = _check_after(after, partitions)
        self.rows = None
        self.row = 0
        self.waiting = 0
        self.likely = 0

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyMem_Free(self.opened)

    def take(self, rows: Rows) -> None:
        """Set the next rows to encode. Raises ValueError unless all previous rows are encoded."""
        if rows is None or (self.rows is not None and self.row < self.rows.count):
            raise ValueError("The previous rows are not encoded completely")
        self.rows = rows
        self.row = 0
        self.likely = rows.size // self.partitions * 5 // 4 if rows.keys.has_offsets else rows.size

    def encode(self) -> list[tuple[int, Encoded]]:
        """Return the next full batches in order, each with its partition; an empty list once all rows are encoded.

        Raises ValueError for a partition that does not exist.
        """
        rows = self.rows
        if rows is None:
            return []
        keys = rows.keys
        values = rows.values
        lists = rows.lists
        names = rows.names
        header_values = rows.header_values
        partitions = rows.partitions
        timestamps = rows.timestamps
        for row in range(self.row, rows.count):
            key_size = _size_at(keys, row)
            key_start = _start_of(keys, row) if key_size > 0 else 0
            value_size = _size_at(values, row)
            value_start = _start_of(values, row) if value_size > 0 else 0
            if _has_number(partitions, row):
                partition = partitions.int32s[partitions.first + row]
                if partition < 0 or partition >= self.partitions:
                    raise ValueError(f"Partition {partition} does not exist, only 0 to {self.partitions - 1}")
            elif key_size >= 0:
                hashed = hash_of(keys.data, key_start, key_size)
                partition = (hashed & 0x7FFFFFFF) % self.partitions
            else:
                partition = self.sticky
            timestamp = timestamps.int64s[timestamps.first + row] if _has_number(timestamps, row) else self.now_ms
            if cython.compiled:
                batch = cython.address(self.opened[partition])
            else:
                batch = self.opened[partition]
            # Timestamps are not negative, so their difference fits 64 bits.
            delta = timestamp - batch.base_timestamp if batch.count else 0
            body = 1 + _size_of(delta) + _size_of(batch.count) + _size_of_field(key_size) + _size_of_field(value_size)
            body += _size_of_headers(lists, names, header_values, row) if rows.has_headers else 1
            size = _size_of(body) + body
            if batch.count and batch.used + size > self.batch_size + _HEADER_SIZE:
                self.row = row
                if partition == self.sticky:
                    self.sticky = self.after[partition]
                return [self._close(partition)]
            if batch.count == 0:
                self._begin(partition, size, timestamp)
            elif batch.capacity - batch.used < size:
                self._grow(partition, size)
            target = batch.target
            position = _write_number(target, batch.used, body)
            target[position] = 0
            position = _write_number(target, position + 1, delta)
            position = _write_number(target, position, batch.count)
            position = _write_field(target, position, keys.data, key_start, key_size)
            position = _write_field(target, position, values.data, value_start, value_size)
            if rows.has_headers:
                _write_headers(target, position, lists, names, header_values, row)
            else:
                target[position] = 0
            batch.used += size
            batch.count += 1
            batch.max_timestamp = max(batch.max_timestamp, timestamp)
            self.waiting += size
            if self.waiting > self.room:
                self.row = row + 1
                return self.finish()
        self.row = rows.count
        self.rows = None
        return []

    def finish(self) -> list[tuple[int, Encoded]]:
        """Return the batches that are not full, by partition."""
        closed = []
        for partition in range(self.partitions):
            if self.opened[partition].count:
                closed.append(self._close(partition))
        return closed

    def _begin(self, partition: int, size: int, timestamp: int) -> None:
        """Allocate memory for a batch, at least for its first record."""
        capacity = max(min(self.likely, self.batch_size), size) + _HEADER_SIZE
        content = bytearray(_HEADER_SIZE)
        self.contents[partition] = content
        self.opened[partition].used = _HEADER_SIZE
        self.opened[partition].base_timestamp = timestamp
        self.opened[partition].max_timestamp = timestamp
        self._resize(partition, content, capacity)

    def _grow(self, partition: int, size: int) -> None:
        capacity = min(2 * self.opened[partition].capacity + size, self.batch_size + _HEADER_SIZE)
        self._resize(partition, self.contents[partition], capacity)

    def _resize(self, partition: int, content: bytearray, capacity: int) -> None:
        if cython.compiled:
            PyByteArray_Resize(content, capacity)
            self.opened[partition].target = cython.cast(Memory, PyByteArray_AS_STRING(content))
        else:
            content.extend(bytes(capacity - len(content)))
            self.opened[partition].target = content
        self.opened[partition].capacity = capacity

    def _close(self, partition: int) -> tuple[int, Encoded]:
        content = self.contents[partition]
        self.contents[partition] = None
        if cython.compiled:
            batch = cython.address(self.opened[partition])
            PyByteArray_Resize(content, batch.used)
        else:
            batch = self.opened[partition]
            del content[batch.used :]
        encoded = (content, batch.count, batch.base_timestamp, batch.max_timestamp, batch.count - 1)
        self.waiting -= batch.used - _HEADER_SIZE
        batch.count = 0
        return partition, encoded
