# mypy: ignore-errors
# ruff: noqa: F821
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Batches into columns, for Cython's pure-Python mode: the promises of `_decode_columns_fallback`, in C.

As `_kernels`, only ever run as an extension module. Every call holds the GIL and is bounded by its input; buffers grow
by what was found in it. A batch that is malformed leaves the columns as they were.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.records._shapes import Shape, read_number, read_record

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c
from ottla.records.columns import BinaryColumn, RecordColumns

COMPILED = True

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, 12)
_MIN_BATCH_LENGTH = cython.declare(cython.Py_ssize_t, 49)
_MIN_RECORD_SIZE = cython.declare(cython.Py_ssize_t, 7)
_CRC_START = cython.declare(cython.Py_ssize_t, 21)
_NOT_PLAIN = cython.declare(cython.int, 0x27)  # compressed, or for brokers and clients only
_LOG_APPEND_TIME = cython.declare(cython.int, 0x08)
_LARGEST_DATA = cython.declare(cython.Py_ssize_t, 0x7FFFFFFF)
_READ_ONLY = cython.declare(cython.int, 0x100)

_Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
_Room = cython.typedef(cython.pointer(uint8_t))
_Int32s = cython.typedef(cython.pointer(int32_t))
_Int64s = cython.typedef(cython.pointer(int64_t))


@cython.final
@cython.cclass
class _Store:
    """Bytes that grow at their end. `at` is valid until the next `reserve`."""

    content: bytearray
    at: _Room
    used: cython.Py_ssize_t
    capacity: cython.Py_ssize_t

    def __cinit__(self, capacity: cython.Py_ssize_t):
        self.content = bytearray()
        self.used = 0
        self.capacity = 0
        self.at = cython.NULL
        self.reserve(capacity)

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, more: cython.Py_ssize_t) -> cython.int:
        """Make room for `more` bytes after those that are used."""
        if self.capacity - self.used >= more and self.at != cython.NULL:
            return 0
        self.capacity = max(self.used + more, 2 * self.capacity)
        PyByteArray_Resize(self.content, self.capacity)
        self.at = cython.cast(_Room, PyByteArray_AS_STRING(self.content))
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def append(self, data: _Bytes, size: cython.Py_ssize_t) -> cython.int:
        if self.capacity - self.used < size:
            self.reserve(size)
        memcpy(self.at + self.used, data, size)
        self.used += size
        return 0

    @cython.cfunc
    def closed(self, size: cython.Py_ssize_t) -> bytearray:
        """The first `size` bytes; the store is not usable any more."""
        PyByteArray_Resize(self.content, size)
        return self.content


@cython.final
@cython.cclass
class _Binary:
    """A column of bytes or null. There is room for as many fields as `reserve` was asked for in total."""

    data: _Store
    ends: _Store
    validity: _Store
    nulls: cython.Py_ssize_t

    def __cinit__(self, expected: cython.Py_ssize_t):
        self.data = _Store(expected)
        self.ends = _Store(64)
        self.validity = _Store(8)
        self.nulls = 0
        cython.cast(_Int32s, self.ends.at)[0] = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def reserve(self, fields: cython.Py_ssize_t) -> cython.int:
        """Room for so many fields in total; their data still has to find its own."""
        self.ends.used = 0
        if self.ends.capacity < 4 * (fields + 1):
            self.ends.reserve(4 * (fields + 1))
        self.validity.used = 0
        if self.validity.capacity < fields // 8 + 1:
            self.validity.reserve(fields // 8 + 1)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def put(self, index: cython.Py_ssize_t, data: _Bytes, size: cython.Py_ssize_t) -> cython.int:
        """Field `index`, the last one; a negative size is null. Bits of what was there before are cleared."""
        bit: uint8_t = index & 7
        byte: uint8_t = self.validity.at[index >> 3] & ((1 << bit) - 1)
        if size < 0:
            self.nulls += 1
        else:
            byte |= 1 << bit
            if size > 0:
                self.data.append(data, size)
        self.validity.at[index >> 3] = byte
        cython.cast(_Int32s, self.ends.at)[index + 1] = cython.cast(int32_t, self.data.used)
        return 0

    @cython.cfunc
    def closed(self, fields: cython.Py_ssize_t) -> object:
        if fields & 7:  # bits of a malformed batch may follow
            self.validity.at[fields >> 3] &= (1 << (fields & 7)) - 1
        return BinaryColumn(
            self.validity.closed((fields + 7) // 8),
            self.ends.closed(4 * (fields + 1)),
            self.data.closed(self.data.used),
            self.nulls,
        )


_Mark = cython.struct(
    rows=cython.Py_ssize_t,
    size=cython.Py_ssize_t,
    headers=cython.Py_ssize_t,
    keys=cython.Py_ssize_t,
    values=cython.Py_ssize_t,
    names=cython.Py_ssize_t,
    header_values=cython.Py_ssize_t,
    null_keys=cython.Py_ssize_t,
    null_values=cython.Py_ssize_t,
    null_header_values=cython.Py_ssize_t,
)


@cython.final
@cython.cclass
class Columns:
    """Records as columns."""

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size = cython.declare(cython.Py_ssize_t, visibility="readonly")
    full = cython.declare(cython.bint, visibility="readonly")
    _most_rows: cython.Py_ssize_t
    _most_bytes: cython.Py_ssize_t
    _capacity: cython.Py_ssize_t
    _offsets: _Store
    _timestamps: _Store
    _keys: _Binary
    _values: _Binary
    _header_ends: _Store
    _headers: cython.Py_ssize_t
    _names: _Binary
    _header_values: _Binary
    _runs: list
    _run_start: cython.Py_ssize_t
    _is_run_append_time: cython.bint
    _closed: cython.bint

    def __cinit__(
        self, most_rows: cython.Py_ssize_t, most_bytes: cython.Py_ssize_t, expected_bytes: cython.Py_ssize_t = 0
    ):
        if most_rows < 1 or most_bytes < 1:
            raise ValueError(f"Columns of {most_rows} rows and {most_bytes} bytes at most hold nothing")
        self.rows = self.size = 0
        self.full = False
        self._most_rows = most_rows
        self._most_bytes = min(most_bytes, _LARGEST_DATA // 3)
        self._capacity = 0
        self._offsets = _Store(0)
        self._timestamps = _Store(0)
        self._keys = _Binary(0)
        self._values = _Binary(min(max(0, expected_bytes), self._most_bytes))
        self._header_ends = _Store(4)
        cython.cast(_Int32s, self._header_ends.at)[0] = 0
        self._headers = 0
        self._names = _Binary(0)
        self._header_values = _Binary(0)
        self._runs = []
        self._run_start = 0
        self._is_run_append_time = False
        self._closed = False

    def add_records(
        self,
        buffer: object,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        append_time: object,
        wanted: int64_t,
    ) -> object:
        """The records of one batch from offset `wanted` on: None, or the next offset where they did not all fit."""
        view: Py_buffer
        time: int64_t = 0 if append_time is None else append_time
        follows: int64_t = wanted
        self._check_open()
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise IndexError(f"{start}:{end} is not within {view.len} bytes")
            outcome: cython.int = self._add(
                cython.cast(_Bytes, view.buf), start, end, count, base_offset, base_timestamp,
                append_time is not None, time, cython.address(follows),
            )  # fmt: skip
        finally:
            PyBuffer_Release(cython.address(view))
        if outcome == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"The {count} records in {end - start} bytes are malformed")
        return None if outcome == 1 else follows

    def add_batches(
        self, buffer: object, position: cython.Py_ssize_t, wanted: int64_t, check_crcs: cython.bint
    ) -> tuple:
        """The plain batches that follow without a gap: (position after them, next offset, leader epoch or -1)."""
        view: Py_buffer
        self._check_open()
        if position < 0:
            raise IndexError(position)
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            return self._add_batches(cython.cast(_Bytes, view.buf), position, view.len, wanted, check_crcs)
        finally:
            PyBuffer_Release(cython.address(view))

    def close(self) -> object:
        """The columns, as RecordColumns; nothing can be added afterwards."""
        self._check_open()
        self._closed = True
        self._end_run(self.rows)
        return RecordColumns(
            self.rows,
            self._offsets.closed(8 * self.rows),
            self._timestamps.closed(8 * self.rows),
            self._keys.closed(self.rows),
            self._values.closed(self.rows),
            self._header_ends.closed(4 * (self.rows + 1)),
            self._names.closed(self._headers),
            self._header_values.closed(self._headers),
            self._runs,
        )

    @cython.cfunc
    def _end_run(self, rows: cython.Py_ssize_t) -> object:
        if rows > self._run_start:
            self._runs.append((bool(self._is_run_append_time), rows - self._run_start))
            self._run_start = rows
        return None

    @cython.cfunc
    def _check_open(self) -> object:
        if self._closed:
            raise ValueError("These columns were handed out")
        return None

    @cython.cfunc
    def _add_batches(
        self,
        data: _Bytes,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        wanted: int64_t,
        check_crcs: cython.bint,
    ) -> tuple:
        length: cython.Py_ssize_t
        attributes: cython.int
        base_offset: int64_t
        after: int64_t
        outcome: cython.int
        epoch: int32_t = -1
        while not self.full and end - position >= _HEADER_SIZE:
            length = cython.cast(int32_t, _uint32(data + position + 8))
            attributes = data[position + 22]
            if (
                length < _MIN_BATCH_LENGTH
                or length > end - position - _LOG_OVERHEAD
                or data[position + 16] != 2
                or attributes & _NOT_PLAIN
            ):
                break
            length += _LOG_OVERHEAD
            base_offset = _int64(data + position)
            after = cython.cast(
                int64_t,
                cython.cast(uint64_t, base_offset)
                + cython.cast(uint64_t, cython.cast(int64_t, cython.cast(int32_t, _uint32(data + position + 23))))
                + 1,
            )
            if data[position + 23] & 0x80:  # it ends before it begins: harmed
                break
            if after <= wanted:
                position += length
                continue
            if check_crcs and not _is_unharmed(data + position, length):
                break
            outcome = self._add(
                data, position + _HEADER_SIZE, position + length, cython.cast(int32_t, _uint32(data + position + 57)),
                base_offset, _int64(data + position + 27), attributes & _LOG_APPEND_TIME, _int64(data + position + 35),
                cython.address(wanted),
            )  # fmt: skip
            if outcome == 0:
                break
            epoch = cython.cast(int32_t, _uint32(data + position + 12))
            if outcome == 2:
                break
            wanted = after
            position += length
        return position, wanted, epoch

    @cython.cfunc
    @cython.exceptval(-1)
    def _add(
        self,
        data: _Bytes,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        has_append_time: cython.bint,
        append_time: int64_t,
        wanted: cython.pointer(int64_t),
    ) -> cython.int:
        """0: malformed, nothing changed. 1: all that is wanted was added. 2: not all fit, `wanted` is the next."""
        mark: _Mark
        least: int64_t = wanted[0]
        outcome: cython.int = 0
        if count < 0 or count > (end - position) // _MIN_RECORD_SIZE:
            return 0
        self._mark(cython.address(mark))
        try:
            self._reserve(self.rows + min(count, self._most_rows - self.rows))
            outcome = self._add_rows(
                data, position, end, count, base_offset, base_timestamp, has_append_time, append_time, wanted
            )
        finally:
            if outcome == 0:
                self._back_to(cython.address(mark))
                wanted[0] = least
        if self.rows > mark.rows and has_append_time != self._is_run_append_time:
            self._end_run(mark.rows)
            self._is_run_append_time = has_append_time
        return outcome

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_rows(
        self,
        data: _Bytes,
        position: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        base_offset: int64_t,
        base_timestamp: int64_t,
        has_append_time: cython.bint,
        append_time: int64_t,
        wanted: cython.pointer(int64_t),
    ) -> cython.int:
        """As `_add`, but what is malformed is noticed when what was before it has been added."""
        s: Shape
        row: cython.Py_ssize_t
        offset: int64_t
        least: int64_t = wanted[0]
        is_cut: cython.bint = False
        offsets: _Int64s = cython.cast(_Int64s, self._offsets.at)
        timestamps: _Int64s = cython.cast(_Int64s, self._timestamps.at)
        header_ends: _Int32s = cython.cast(_Int32s, self._header_ends.at)
        _: cython.Py_ssize_t
        for _ in range(count):
            if not read_record(data, position, end, cython.address(s)):
                return 0
            position = s.end
            offset = cython.cast(int64_t, cython.cast(uint64_t, base_offset) + cython.cast(uint64_t, s.offset_delta))
            if is_cut or offset < least:
                continue
            row = self.rows
            if row >= self._most_rows or (row > 0 and s.end - s.begin > self._most_bytes - self.size):
                is_cut = True
                continue
            offsets[row] = offset
            timestamps[row] = append_time if has_append_time else cython.cast(
                int64_t, cython.cast(uint64_t, base_timestamp) + cython.cast(uint64_t, s.timestamp_delta)
            )  # fmt: skip
            self._keys.put(row, data + s.key, s.key_size)
            self._values.put(row, data + s.value, s.value_size)
            if s.header_count and not self._add_headers(data, cython.address(s)):
                return 0
            header_ends[row + 1] = cython.cast(int32_t, self._headers)
            self.size += s.end - s.begin
            self.rows = row + 1
            wanted[0] = cython.cast(int64_t, cython.cast(uint64_t, offset) + 1)
        if position != end:
            return 0
        self.full = is_cut or self.rows >= self._most_rows or self.size >= self._most_bytes
        return 2 if is_cut else 1

    @cython.cfunc
    @cython.exceptval(-1)
    def _reserve(self, rows: cython.Py_ssize_t) -> cython.int:
        """Room for so many rows in total."""
        if rows <= self._capacity:
            return 0
        rows = max(rows, min(2 * self._capacity, self._most_rows))
        self._offsets.reserve(8 * rows)
        self._timestamps.reserve(8 * rows)
        self._header_ends.reserve(4 * (rows + 1))
        self._keys.reserve(rows)
        self._values.reserve(rows)
        self._capacity = rows
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_headers(self, data: _Bytes, s: cython.pointer(Shape)) -> cython.int:
        """The headers of a record, whose structure has been checked; false if a column cannot hold their names."""
        position: cython.Py_ssize_t = s.headers
        number: int64_t = 0
        _: int32_t
        self._names.reserve(self._rounded(self._headers + s.header_count))
        self._header_values.reserve(self._rounded(self._headers + s.header_count))
        for _ in range(s.header_count):
            position = read_number(data, position, s.end, 32, cython.address(number))
            if not self._add_name(data + position, cython.cast(cython.Py_ssize_t, number)):
                return 0
            position = read_number(data, position + number, s.end, 32, cython.address(number))
            self._header_values.put(self._headers, data + position, cython.cast(cython.Py_ssize_t, number))
            if number > 0:
                position += number
            self._headers += 1
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _rounded(self, headers: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """More than so many, so that not every record asks for room."""
        return headers | 63

    @cython.cfunc
    @cython.exceptval(-1)
    def _add_name(self, data: _Bytes, size: cython.Py_ssize_t) -> cython.int:
        index: cython.Py_ssize_t
        high: uint8_t = 0
        for index in range(size):
            high |= data[index]
        if high < 0x80:
            self._names.put(self._headers, data, size)
            return 1
        text: bytes = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, data), size, b"replace").encode()
        if PyBytes_GET_SIZE(text) > _LARGEST_DATA - self._names.data.used:
            return 0
        self._names.put(self._headers, cython.cast(_Bytes, PyBytes_AS_STRING(text)), PyBytes_GET_SIZE(text))
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _mark(self, mark: cython.pointer(_Mark)) -> cython.void:
        mark.rows = self.rows
        mark.size = self.size
        mark.headers = self._headers
        mark.keys = self._keys.data.used
        mark.values = self._values.data.used
        mark.names = self._names.data.used
        mark.header_values = self._header_values.data.used
        mark.null_keys = self._keys.nulls
        mark.null_values = self._values.nulls
        mark.null_header_values = self._header_values.nulls

    @cython.cfunc
    @cython.exceptval(check=False)
    def _back_to(self, mark: cython.pointer(_Mark)) -> cython.void:
        self.rows = mark.rows
        self.size = mark.size
        self._headers = mark.headers
        self._keys.data.used = mark.keys
        self._values.data.used = mark.values
        self._names.data.used = mark.names
        self._header_values.data.used = mark.header_values
        self._keys.nulls = mark.null_keys
        self._values.nulls = mark.null_values
        self._header_values.nulls = mark.null_header_values


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uint32(data: _Bytes) -> uint32_t:
    return (
        cython.cast(uint32_t, data[0]) << 24
        | cython.cast(uint32_t, data[1]) << 16
        | cython.cast(uint32_t, data[2]) << 8
        | cython.cast(uint32_t, data[3])
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(data: _Bytes) -> int64_t:
    return cython.cast(int64_t, cython.cast(uint64_t, _uint32(data)) << 32 | cython.cast(uint64_t, _uint32(data + 4)))


@cython.cfunc
@cython.exceptval(-1)
def _is_unharmed(data: _Bytes, size: cython.Py_ssize_t) -> cython.int:
    """Whether the checksum of a batch is right."""
    checksum: uint32_t = crc32c(
        PyMemoryView_FromMemory(cython.cast(cython.p_char, data + _CRC_START), size - _CRC_START, _READ_ONLY)
    )
    return checksum == _uint32(data + 17)


def repeat_texts(runs: list) -> object:
    """Each of the (bytes, how often) so often, as one column without nulls."""
    text: bytes
    count: cython.Py_ssize_t
    size: cython.Py_ssize_t = 0
    rows: cython.Py_ssize_t = 0
    for text, count in runs:
        if count < 0:
            raise ValueError(f"{count} times is not possible")
        if PyBytes_GET_SIZE(text) > 0 and count > (_LARGEST_DATA - size) // PyBytes_GET_SIZE(text):
            raise ValueError("So many texts are larger than a column holds")
        size += PyBytes_GET_SIZE(text) * count
        rows += count
    ends: _Store = _Store(4 * (rows + 1))
    data: _Store = _Store(size)
    end: _Int32s = cython.cast(_Int32s, ends.at)
    index: cython.Py_ssize_t = 0
    position: int32_t = 0
    _: cython.Py_ssize_t
    end[0] = 0
    for text, count in runs:
        for _ in range(count):
            index += 1
            memcpy(data.at + position, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            position += cython.cast(int32_t, PyBytes_GET_SIZE(text))
            end[index] = position
    return BinaryColumn(bytearray(), ends.closed(4 * (rows + 1)), data.closed(size), 0)


def whole_batches(buffer: object) -> tuple:
    """(offset after the last whole batch, position after it); (-1, 0) if there is no whole batch."""
    view: Py_buffer
    position: cython.Py_ssize_t = 0
    last: cython.Py_ssize_t = -1
    length: int32_t
    follows: int64_t = -1
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    data: _Bytes = cython.cast(_Bytes, view.buf)
    while view.len - position >= _HEADER_SIZE:
        length = cython.cast(int32_t, _uint32(data + position + 8))
        if length < _MIN_BATCH_LENGTH or length > view.len - position - _LOG_OVERHEAD:
            break
        last = position
        position += _LOG_OVERHEAD + length
    if last >= 0:
        follows = cython.cast(
            int64_t,
            cython.cast(uint64_t, _int64(data + last))
            + cython.cast(uint64_t, cython.cast(int64_t, cython.cast(int32_t, _uint32(data + last + 23))))
            + 1,
        )
    PyBuffer_Release(cython.address(view))
    return follows, position
