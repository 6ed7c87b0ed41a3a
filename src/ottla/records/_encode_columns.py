# mypy: ignore-errors
# ruff: noqa: F821
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Columns into batches, for Cython's pure-Python mode: the promises of `_encode_columns_fallback`, in C.

`kernels` imports this only as an extension module. `Rows` keeps the buffers and checks once that all offsets are within
them; after that `RowEncoder` follows them unchecked. A call holds the GIL for one batch or so.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cython.cimports.cpython.mem import PyMem_Calloc, PyMem_Free
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.ottla.records._numbers import hash_key, size_of, write_number

COMPILED = True

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_RECORD_OVERHEAD = cython.declare(cython.Py_ssize_t, 21)
_PAIR_OVERHEAD = cython.declare(cython.Py_ssize_t, 10)

_Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))


def _raise_harmed(what: str) -> None:
    raise ValueError(f"The columns are harmed: {what}")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_valid(bits: _Bytes, index: cython.Py_ssize_t) -> cython.bint:
    return bits == cython.NULL or (bits[index >> 3] >> (index & 7)) & 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _start_of(column: cython.pointer(Strings), row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where a row starts; that of the row after the last is where the last one ends."""
    if column.narrow != cython.NULL:
        return column.narrow[column.first + row]
    return column.wide[column.first + row]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_at(column: cython.pointer(Strings), row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a row, -1 if it is null."""
    if column.narrow == cython.NULL and column.wide == cython.NULL:
        return -1
    if not _is_valid(column.validity, column.first + row):
        return -1
    return _start_of(column, row + 1) - _start_of(column, row)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_field(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return 1 if size < 0 else size_of(size) + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_field(
    place: cython.pointer(uint8_t), column: cython.pointer(Strings), row: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.pointer(uint8_t):
    if size < 0:
        place[0] = 1
        return place + 1
    place = write_number(place, size)
    if size:
        memcpy(place, column.data + _start_of(column, row), size)
    return place + size


@cython.cfunc
def _check_ascent(
    column: cython.pointer(Strings), start: cython.Py_ssize_t, end: cython.Py_ssize_t, limit: cython.Py_ssize_t
) -> cython.int:
    """Offsets that ascend from 0 at least to `limit` at most."""
    row: cython.Py_ssize_t
    fits: cython.bint = _start_of(column, start) >= 0 and _start_of(column, end) <= limit
    for row in range(start, end):
        fits &= _start_of(column, row) <= _start_of(column, row + 1)
    if not fits:
        _raise_harmed("offsets that do not ascend within the data")
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _size_of_headers(rows: Rows, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of the headers of a row with their count."""
    index: cython.Py_ssize_t
    if _size_at(cython.address(rows.lists), row) <= 0:
        return 1
    start: cython.Py_ssize_t = _start_of(cython.address(rows.lists), row)
    end: cython.Py_ssize_t = _start_of(cython.address(rows.lists), row + 1)
    size: cython.Py_ssize_t = size_of(end - start)
    for index in range(start, end):
        size += _size_of_field(_size_at(cython.address(rows.names), index))
        size += _size_of_field(_size_at(cython.address(rows.header_values), index))
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _write_headers(place: cython.pointer(uint8_t), rows: Rows, row: cython.Py_ssize_t) -> cython.pointer(uint8_t):
    index: cython.Py_ssize_t
    if _size_at(cython.address(rows.lists), row) <= 0:
        place[0] = 0
        return place + 1
    start: cython.Py_ssize_t = _start_of(cython.address(rows.lists), row)
    end: cython.Py_ssize_t = _start_of(cython.address(rows.lists), row + 1)
    place = write_number(place, end - start)
    for index in range(start, end):
        place = _write_field(place, cython.address(rows.names), index, _size_at(cython.address(rows.names), index))
        place = _write_field(
            place, cython.address(rows.header_values), index, _size_at(cython.address(rows.header_values), index)
        )
    return place


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_row(
    place: cython.pointer(uint8_t),
    rows: Rows,
    row: cython.Py_ssize_t,
    body: cython.Py_ssize_t,
    delta: int64_t,
    offset_delta: int32_t,
    key_size: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
) -> cython.void:
    place = write_number(place, body)
    place[0] = 0
    place = write_number(place + 1, delta)
    place = write_number(place, offset_delta)
    place = _write_field(place, cython.address(rows.keys), row, key_size)
    place = _write_field(place, cython.address(rows.values), row, value_size)
    if rows.has_headers:
        _write_headers(place, rows, row)
    else:
        place[0] = 0


@cython.cclass
class Rows:
    """Columns of `count` rows, by their buffers; they are kept and must not change."""

    def __init__(
        self,
        count: cython.Py_ssize_t,
        key: object,
        value: object,
        partition: object,
        timestamp: object,
        headers: object,
    ) -> None:
        if self.held or count < 0:
            raise ValueError("Rows are made once, of 0 rows or more")
        self.count = count
        self.strings_of(cython.address(self.keys), key, 0, count)
        self.strings_of(cython.address(self.values), value, 0, count)
        if headers is not None:
            self.take_headers(headers)
        self.measure(partition, timestamp)

    def __dealloc__(self) -> None:
        while self.held:
            self.held -= 1
            PyBuffer_Release(cython.address(self.views[self.held]))

    @cython.cfunc
    @cython.exceptval(check=True)
    def hold(self, buffer: object) -> cython.pointer(Py_buffer):
        view: cython.pointer(Py_buffer) = cython.address(self.views[self.held])
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self.held += 1
        return view

    @cython.cfunc
    @cython.exceptval(check=True)
    def bits(self, buffer: object, last: cython.Py_ssize_t) -> _Bytes:
        """A bitmap of at least `last` bits, NULL for None."""
        if buffer is None:
            return cython.NULL
        view: cython.pointer(Py_buffer) = self.hold(buffer)
        if view.len < (last + 7) >> 3:
            _raise_harmed("a bitmap that is too short")
        return cython.cast(_Bytes, view.buf)

    @cython.cfunc
    @cython.exceptval(check=True)
    def numbers(self, buffer: object, last: cython.Py_ssize_t, width: cython.Py_ssize_t) -> cython.p_void:
        view: cython.pointer(Py_buffer) = self.hold(buffer)
        if view.len // width < last:
            _raise_harmed("a buffer of numbers that is too short")
        return view.buf

    @cython.cfunc
    @cython.exceptval(-1)
    def offsets_of(
        self,
        column: cython.pointer(Strings),
        validity: object,
        offsets: object,
        first: cython.Py_ssize_t,
        wide: object,
        count: cython.Py_ssize_t,
    ) -> cython.int:
        if first < 0:
            _raise_harmed("a negative offset")
        column.first = first
        if count == 0:
            return 0
        column.validity = self.bits(validity, first + count)
        if wide:
            column.wide = cython.cast(
                cython.pointer(cython.const[int64_t]), self.numbers(offsets, first + count + 1, 8)
            )
        else:
            column.narrow = cython.cast(
                cython.pointer(cython.const[int32_t]), self.numbers(offsets, first + count + 1, 4)
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def strings_of(
        self, column: cython.pointer(Strings), buffers: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.int:
        """A column of which the rows from `start` to `end` will be looked at."""
        if buffers is None:
            return 0
        validity, offsets, data, first, wide = buffers
        self.offsets_of(column, validity, offsets, first, wide, end)
        if end:
            limit: cython.Py_ssize_t = 0
            if data is not None:
                view: cython.pointer(Py_buffer) = self.hold(data)
                column.data = cython.cast(_Bytes, view.buf)
                limit = view.len
            _check_ascent(column, start, end, limit)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def take_headers(self, headers: object) -> cython.int:
        row: cython.Py_ssize_t
        index: cython.Py_ssize_t
        lists: cython.pointer(Strings) = cython.address(self.lists)
        validity, offsets, first, wide, names, values, pairs = headers
        if not self.count:
            return 0
        self.offsets_of(lists, validity, offsets, first, wide, self.count)
        _check_ascent(lists, 0, self.count, pairs)
        start: cython.Py_ssize_t = _start_of(lists, 0)
        end: cython.Py_ssize_t = _start_of(lists, self.count)
        self.strings_of(cython.address(self.names), names, start, end)
        self.strings_of(cython.address(self.header_values), values, start, end)
        self.has_headers = True
        for row in range(self.count):
            if _size_at(lists, row) <= 0:
                continue
            for index in range(_start_of(lists, row), _start_of(lists, row + 1)):
                if _size_at(cython.address(self.names), index) < 0:
                    raise ValueError("The column headers has a header without a name")
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def measure(self, partitions: object, timestamps: object) -> cython.int:
        row: cython.Py_ssize_t
        index: cython.Py_ssize_t
        field: cython.Py_ssize_t
        size: cython.Py_ssize_t
        largest: cython.Py_ssize_t = 0
        earliest: int64_t = 0
        if partitions is not None and self.count:
            validity, numbers, first = partitions
            self.first_partition = first
            self.partition_validity = self.bits(validity, self.first_partition + self.count)
            self.partitions = cython.cast(
                cython.pointer(cython.const[int32_t]), self.numbers(numbers, self.first_partition + self.count, 4)
            )
        if timestamps is not None and self.count:
            validity, numbers, first = timestamps
            self.first_timestamp = first
            self.timestamp_validity = self.bits(validity, self.first_timestamp + self.count)
            self.timestamps = cython.cast(
                cython.pointer(cython.const[int64_t]), self.numbers(numbers, self.first_timestamp + self.count, 8)
            )
            for row in range(self.first_timestamp, self.first_timestamp + self.count):
                if _is_valid(self.timestamp_validity, row) and self.timestamps[row] < earliest:
                    earliest = self.timestamps[row]
        for row in range(self.count):
            size = _RECORD_OVERHEAD
            field = _size_at(cython.address(self.keys), row)
            size += max(0, field)
            field = _size_at(cython.address(self.values), row)
            size += max(0, field)
            if self.has_headers and _size_at(cython.address(self.lists), row) > 0:
                for index in range(
                    _start_of(cython.address(self.lists), row), _start_of(cython.address(self.lists), row + 1)
                ):
                    field = _size_at(cython.address(self.header_values), index)
                    size += _PAIR_OVERHEAD + _size_at(cython.address(self.names), index) + (max(0, field))
            self.size += size
            if size > largest:
                largest = size
        self.largest = largest
        self.earliest = earliest
        return 0


def _checked_turns(after: list[int] | None, partitions: int) -> list[int]:
    if after is None:
        return [(partition + 1) % partitions for partition in range(partitions)]
    if len(after) != partitions or not 0 <= min(after) <= max(after) < partitions:
        raise ValueError(f"What comes after each of {partitions} partitions: {after}")
    return list(after)


@cython.cclass
class RowEncoder:
    """Rows into batches for the partitions of one topic."""

    def __init__(
        self,
        partitions: int32_t,
        batch_size: cython.Py_ssize_t,
        room: cython.Py_ssize_t,
        now_ms: int64_t,
        sticky: int32_t,
        after: list[int] | None = None,
    ) -> None:
        if partitions < 1 or not 0 <= sticky < partitions or self.opened != cython.NULL:
            raise ValueError(f"Partition {sticky} of {partitions}")
        self.opened = cython.cast(cython.pointer(Open), PyMem_Calloc(partitions, cython.sizeof(Open)))
        if self.opened == cython.NULL:
            raise MemoryError
        self.bodies = [None] * partitions
        self.partitions = partitions
        self.batch_size = batch_size
        self.room = room
        self.now_ms = now_ms
        self.sticky = sticky
        self.after = _checked_turns(after, partitions)

    def __dealloc__(self) -> None:
        PyMem_Free(self.opened)

    def take(self, rows: Rows) -> None:
        """Go on with these rows; the ones before must have been encoded."""
        if rows is None or (self.rows is not None and self.row < self.rows.count):
            raise ValueError("There are rows that are not encoded")
        self.rows = rows
        self.row = 0
        self.likely = (
            rows.size
            if rows.keys.narrow == cython.NULL and rows.keys.wide == cython.NULL
            else (rows.size // self.partitions * 5 // 4)
        )

    def encode(self) -> list:
        """The next batches that are full, in order; none when the rows are all taken."""
        rows: Rows = self.rows
        opened: cython.pointer(Open)
        row: cython.Py_ssize_t
        index: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        body: cython.Py_ssize_t
        size: cython.Py_ssize_t
        partition: int32_t
        timestamp: int64_t
        delta: int64_t
        if rows is None:
            return []
        for row in range(self.row, rows.count):
            key_size = _size_at(cython.address(rows.keys), row)
            value_size = _size_at(cython.address(rows.values), row)
            index = rows.first_partition + row
            if rows.partitions != cython.NULL and _is_valid(rows.partition_validity, index):
                partition = rows.partitions[index]
                if partition < 0 or partition >= self.partitions:
                    raise ValueError(f"There is no partition {partition}, only 0 to {self.partitions - 1}")
            elif key_size >= 0:
                partition = (
                    hash_key(rows.keys.data + _start_of(cython.address(rows.keys), row), key_size) & 0x7FFFFFFF
                ) % self.partitions
            else:
                partition = self.sticky
            index = rows.first_timestamp + row
            if rows.timestamps != cython.NULL and _is_valid(rows.timestamp_validity, index):
                timestamp = rows.timestamps[index]
            else:
                timestamp = self.now_ms
            opened = cython.address(self.opened[partition])
            # Timestamps are not negative, nor is their difference too large for an int64.
            delta = timestamp - opened.base_timestamp if opened.count else 0
            body = 1 + size_of(delta) + size_of(opened.count) + _size_of_field(key_size) + _size_of_field(value_size)
            body += _size_of_headers(rows, row) if rows.has_headers else 1
            size = size_of(body) + body
            if opened.count and opened.used + size > self.batch_size + _HEADER_SIZE:
                self.row = row
                if partition == self.sticky:
                    self.sticky = self.after[partition]
                return [self.close(partition)]
            if opened.count == 0:
                self.begin(partition, size)
                opened.base_timestamp = opened.max_timestamp = timestamp
            elif opened.capacity - opened.used < size:
                self.grow(partition, size)
            _write_row(opened.room + opened.used, rows, row, body, delta, opened.count, key_size, value_size)
            opened.used += size
            opened.count += 1
            if timestamp > opened.max_timestamp:
                opened.max_timestamp = timestamp
            self.waiting += size
            if self.waiting > self.room:
                self.row = row + 1
                return self.finish()
        self.row = rows.count
        self.rows = None
        return []

    def finish(self) -> list:
        """The batches that are not full, by partition."""
        return [self.close(partition) for partition in range(self.partitions) if self.opened[partition].count]

    @cython.cfunc
    @cython.exceptval(-1)
    def begin(self, partition: int32_t, size: cython.Py_ssize_t) -> cython.int:
        opened: cython.pointer(Open) = cython.address(self.opened[partition])
        capacity: cython.Py_ssize_t = min(self.likely, self.batch_size)
        if capacity < size:
            capacity = size
        capacity += _HEADER_SIZE
        body: bytearray = PyByteArray_FromStringAndSize(cython.NULL, capacity)
        self.bodies[partition] = body
        opened.room = cython.cast(cython.pointer(uint8_t), PyByteArray_AS_STRING(body))
        memset(opened.room, 0, _HEADER_SIZE)
        opened.used = _HEADER_SIZE
        opened.capacity = capacity
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def grow(self, partition: int32_t, size: cython.Py_ssize_t) -> cython.int:
        opened: cython.pointer(Open) = cython.address(self.opened[partition])
        capacity: cython.Py_ssize_t = 2 * opened.capacity + size
        if capacity > self.batch_size + _HEADER_SIZE:
            capacity = self.batch_size + _HEADER_SIZE
        body: bytearray = self.bodies[partition]
        PyByteArray_Resize(body, capacity)
        opened.room = cython.cast(cython.pointer(uint8_t), PyByteArray_AS_STRING(body))
        opened.capacity = capacity
        return 0

    @cython.cfunc
    def close(self, partition: int32_t) -> object:
        opened: cython.pointer(Open) = cython.address(self.opened[partition])
        body: bytearray = self.bodies[partition]
        self.bodies[partition] = None
        PyByteArray_Resize(body, opened.used)
        encoded: tuple = (body, opened.count, opened.base_timestamp, opened.max_timestamp, opened.count - 1)
        self.waiting -= opened.used - _HEADER_SIZE
        opened.count = 0
        opened.room = cython.NULL
        return partition, encoded
