# mypy: ignore-errors
# ruff: noqa: F821
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernels for Cython's pure-Python mode: the promises of `_kernels_fallback`, in C.

`kernels` imports this only as an extension module; as plain source it is never run. Every function holds the GIL and
is bounded by its input. Sums of deltas wrap as in Java: they are made on unsigned numbers. Neither mypy nor ruff knows
C's types and declarations; the conformance suite over both modules checks instead.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.cpython.ref import Py_INCREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.records._castagnoli import ottla_computes_crc, ottla_crc32c
from cython.cimports.ottla.records._numbers import hash_key, size_of, write_number
from cython.cimports.ottla.records._shapes import Shape, read_number, read_record, read_usual

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c

COMPILED = True

_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, 12)
_MIN_BATCH_LENGTH = cython.declare(cython.Py_ssize_t, 49)
_MIN_RECORD_SIZE = cython.declare(cython.Py_ssize_t, 7)
_CRC_START = cython.declare(cython.Py_ssize_t, 21)
# Above, the library computes a CRC quicker.
_PLAIN_BYTES = cython.declare(cython.Py_ssize_t, 4096)
_FARTHEST = cython.declare(int64_t, 1 << 62)
_computes_crc = cython.declare(cython.bint, ottla_computes_crc())

_Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
_Room = cython.typedef(cython.pointer(uint8_t))


def _raise_malformed(index: cython.Py_ssize_t) -> None:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"Record {index} of the batch is malformed")


def _raise_bad_count(count: object, size: object) -> None:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records cannot be in {size} bytes")


def _raise_left_over(left: object, count: object) -> None:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"{left} bytes follow the {count} records of the batch")


@cython.cfunc
@cython.inline
def _bytes_or_none(data: _Bytes, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> object:
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + start), size)


@cython.cfunc
def _read_headers(data: _Bytes, s: cython.pointer(Shape)) -> list:
    """The headers, whose structure has been checked."""
    position: cython.Py_ssize_t = s.headers
    number: int64_t = 0
    _: int32_t
    headers: list = []
    for _ in range(s.header_count):
        position = read_number(data, position, s.end, 32, cython.address(number))
        name: object = PyUnicode_DecodeUTF8(
            cython.cast(cython.p_char, data + position), cython.cast(cython.Py_ssize_t, number), b"replace"
        )
        position = read_number(data, position + number, s.end, 32, cython.address(number))
        headers.append((name, _bytes_or_none(data, position, number)))
        if number > 0:
            position += number
    return headers


@cython.cfunc
def _check_span(size: cython.Py_ssize_t, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: object) -> object:
    """Our callers' mistakes are IndexErrors; an impossible count is the batch's."""
    if start < 0 or end > size or start > end:
        raise IndexError(f"{start}:{end} is not within {size} bytes")
    if count < 0 or count > (end - start) // _MIN_RECORD_SIZE:
        _raise_bad_count(count, end - start)
    return None


def scan_batches(buffer: object, position: cython.Py_ssize_t = 0) -> object:
    """Position after the last whole batch v2 that follows `position` without a gap; CRCs are not checked."""
    view: Py_buffer
    if position < 0:
        raise IndexError(position)
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    data: _Bytes = cython.cast(_Bytes, view.buf)
    end: cython.Py_ssize_t = view.len
    length: int32_t
    while end - position >= _HEADER_SIZE:
        length = cython.cast(
            int32_t,
            cython.cast(uint32_t, data[position + 8]) << 24
            | cython.cast(uint32_t, data[position + 9]) << 16
            | cython.cast(uint32_t, data[position + 10]) << 8
            | cython.cast(uint32_t, data[position + 11]),
        )
        if length < _MIN_BATCH_LENGTH or data[position + 16] != 2 or end - position - _LOG_OVERHEAD < length:
            break
        position += _LOG_OVERHEAD + length
    PyBuffer_Release(cython.address(view))
    return position


# What is known of the records that are sound, as far as there are any: how many, and where the last of them ends.
_Walk = cython.struct(
    sound=cython.Py_ssize_t,
    position=cython.Py_ssize_t,
    least=int64_t,
    greatest=int64_t,
    null_keys=cython.Py_ssize_t,
    misplaced=cython.Py_ssize_t,
)


@cython.cfunc
@cython.exceptval(check=False)
def _walk(data: _Bytes, position: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t) -> _Walk:
    s: Shape
    unusual: Shape
    index: cython.Py_ssize_t = 0
    least: int64_t = 0
    greatest: int64_t = 0
    null_keys: cython.Py_ssize_t = 0
    misplaced: cython.Py_ssize_t = 0
    while index < count:
        if not read_usual(data, position, end, cython.address(s)):
            if not read_record(data, position, end, cython.address(unusual)):
                break
            s = unusual
        position = s.end
        if index == 0 or s.timestamp_delta < least:
            least = s.timestamp_delta
        if index == 0 or s.timestamp_delta > greatest:
            greatest = s.timestamp_delta
        null_keys += s.key_size < 0
        misplaced += s.offset_delta != index
        index += 1
    walk: _Walk
    walk.sound = index
    walk.position = position
    walk.least = least
    walk.greatest = greatest
    walk.null_keys = null_keys
    walk.misplaced = misplaced
    return walk


def walk_records(buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: object) -> object:
    """Check the structure of `count` records: (least, greatest timestamp delta, records without key, out of order)."""
    view: Py_buffer
    walk: _Walk
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        _check_span(view.len, start, end, count)
        walk = _walk(cython.cast(_Bytes, view.buf), start, end, count)
    finally:
        PyBuffer_Release(cython.address(view))
    if walk.sound < count:
        _raise_malformed(walk.sound)
    if walk.position != end:
        _raise_left_over(end - walk.position, count)
    return walk.least, walk.greatest, walk.null_keys, walk.misplaced


@cython.cfunc
@cython.inline
def _number(data: _Bytes, size: cython.int) -> uint64_t:
    """The number whose highest byte comes first."""
    number: uint64_t = 0
    index: cython.int
    for index in range(size):
        number = number << 8 | data[index]
    return number


@cython.cfunc
@cython.inline
def _fill(row: object, index: cython.Py_ssize_t, number: int64_t) -> None:
    value: object = number
    Py_INCREF(value)
    PyTuple_SET_ITEM(row, index, value)


def plain_batch(buffer: object, most_bytes: cython.Py_ssize_t, make: type) -> object:
    """(header as `make`, least and greatest timestamp, records without key) of a batch with nothing special; else None.

    Alone in the buffer, within `most_bytes`, without attributes, offsets from 0 on, sound to the last record.
    """
    view: Py_buffer
    found: object = None
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    crc: uint32_t
    try:
        data: _Bytes = cython.cast(_Bytes, view.buf)
        if _HEADER_SIZE <= view.len <= most_bytes and data[21] == 0 and data[22] == 0:
            if _computes_crc and view.len <= _PLAIN_BYTES:
                crc = ottla_crc32c(data + _CRC_START, view.len - _CRC_START)
            else:
                crc = crc32c(memoryview(buffer)[_CRC_START:])
            found = _plain_batch(data, view.len, crc, make)
    finally:
        PyBuffer_Release(cython.address(view))
    return found


@cython.cfunc
def _plain_batch(data: _Bytes, end: cython.Py_ssize_t, crc: uint32_t, make: type) -> object:
    count: int32_t = cython.cast(int32_t, _number(data + 57, 4))
    base_timestamp: int64_t = cython.cast(int64_t, _number(data + 27, 8))
    producer_id: int64_t = cython.cast(int64_t, _number(data + 43, 8))
    base_sequence: int32_t = cython.cast(int32_t, _number(data + 53, 4))
    if (
        _number(data, 8) != 0
        or _number(data + 8, 4) != cython.cast(uint64_t, end - _LOG_OVERHEAD)
        or data[16] != 2
        or count <= 0
        or count > end
        or _number(data + 23, 4) != cython.cast(uint64_t, count - 1)
        or (producer_id >= 0 and base_sequence < 0)
        or not -_FARTHEST < base_timestamp < _FARTHEST
        or _number(data + 17, 4) != crc
    ):
        return None
    walk: _Walk = _walk(data, _HEADER_SIZE, end, count)
    if (
        walk.sound < count
        or walk.position != end
        or walk.misplaced
        or not -_FARTHEST < walk.least <= walk.greatest < _FARTHEST
    ):
        return None
    header: object = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), make), 13)
    _fill(header, 0, 0)
    _fill(header, 1, end - _LOG_OVERHEAD)
    _fill(header, 2, cython.cast(int32_t, _number(data + 12, 4)))
    _fill(header, 3, 2)
    _fill(header, 4, crc)
    _fill(header, 5, 0)
    _fill(header, 6, count - 1)
    _fill(header, 7, base_timestamp)
    _fill(header, 8, cython.cast(int64_t, _number(data + 35, 8)))
    _fill(header, 9, producer_id)
    _fill(header, 10, cython.cast(int16_t, _number(data + 51, 2)))
    _fill(header, 11, base_sequence)
    _fill(header, 12, count)
    return header, base_timestamp + walk.least, base_timestamp + walk.greatest, walk.null_keys


def decode_records(
    buffer: object,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: object,
    base_offset: int64_t,
    base_timestamp: int64_t,
    append_time: object,
    make: type,
) -> list:
    """The records as instances of `make`, a NamedTuple of offset, timestamp, key, value, headers."""
    collects: cython.int
    if not issubclass(make, tuple):
        raise TypeError(f"{make} is no NamedTuple")
    # Records refer to nothing that refers to them; looking for cycles again and again would cost more than decoding.
    collects = PyGC_Disable()
    try:
        return _decode_records(buffer, start, end, count, base_offset, base_timestamp, append_time, make)
    finally:
        if collects:
            PyGC_Enable()


@cython.cfunc
def _decode_records(
    buffer: object,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: object,
    base_offset: int64_t,
    base_timestamp: int64_t,
    append_time: object,
    make: type,
) -> list:
    view: Py_buffer
    s: Shape
    index: cython.Py_ssize_t
    rows: list = []
    row: object
    field: object
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        _check_span(view.len, start, end, count)
        data: _Bytes = cython.cast(_Bytes, view.buf)
        total: cython.Py_ssize_t = count
        position: cython.Py_ssize_t = start
        for index in range(total):
            if not read_record(data, position, end, cython.address(s)):
                _raise_malformed(index)
            position = s.end
            # As tuple.__new__ does, without the tuple in between.
            row = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), make), 5)
            field = cython.cast(int64_t, cython.cast(uint64_t, base_offset) + cython.cast(uint64_t, s.offset_delta))
            Py_INCREF(field)
            PyTuple_SET_ITEM(row, 0, field)
            if append_time is None:
                field = cython.cast(
                    int64_t, cython.cast(uint64_t, base_timestamp) + cython.cast(uint64_t, s.timestamp_delta)
                )
            else:
                field = append_time
            Py_INCREF(field)
            PyTuple_SET_ITEM(row, 1, field)
            field = _bytes_or_none(data, s.key, s.key_size)
            Py_INCREF(field)
            PyTuple_SET_ITEM(row, 2, field)
            field = _bytes_or_none(data, s.value, s.value_size)
            Py_INCREF(field)
            PyTuple_SET_ITEM(row, 3, field)
            field = [] if s.header_count == 0 else _read_headers(data, cython.address(s))
            Py_INCREF(field)
            PyTuple_SET_ITEM(row, 4, field)
            # A record is in no cycle, so the collector need not look at it as long as it lives, nor at no headers.
            PyObject_GC_UnTrack(cython.cast(cython.pointer(cython.void), row))
            if s.header_count == 0:
                PyObject_GC_UnTrack(cython.cast(cython.pointer(cython.void), field))
            rows.append(row)
        if position != end:
            _raise_left_over(end - position, count)
    finally:
        PyBuffer_Release(cython.address(view))
    return rows


def decode_keys(
    buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: object, base_offset: int64_t
) -> list:
    """(offset, key, whether there is a value) of every record: what compaction asks."""
    view: Py_buffer
    s: Shape
    index: cython.Py_ssize_t
    offset: int64_t
    rows: list = []
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        _check_span(view.len, start, end, count)
        data: _Bytes = cython.cast(_Bytes, view.buf)
        total: cython.Py_ssize_t = count
        position: cython.Py_ssize_t = start
        for index in range(total):
            if not read_record(data, position, end, cython.address(s)):
                _raise_malformed(index)
            position = s.end
            offset = cython.cast(int64_t, cython.cast(uint64_t, base_offset) + cython.cast(uint64_t, s.offset_delta))
            rows.append((offset, _bytes_or_none(data, s.key, s.key_size), s.value_size >= 0))
        if position != end:
            _raise_left_over(end - position, count)
    finally:
        PyBuffer_Release(cython.address(view))
    return rows


def keep_records(
    buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t, count: object, mask: bytes, shift: int64_t
) -> tuple:
    """The records whose byte in `mask` is not 0: (61 bytes for a header and the records, how many, deltas)."""
    view: Py_buffer
    s: Shape
    index: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    moved: int64_t
    kept: cython.Py_ssize_t = 0
    first: int64_t = 0
    greatest: int64_t = 0
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    try:
        _check_span(view.len, start, end, count)
        if PyBytes_GET_SIZE(mask) != count:
            raise ValueError(f"A mask of {len(mask)} for {count} records")
        chosen: _Bytes = cython.cast(_Bytes, PyBytes_AS_STRING(mask))
        data: _Bytes = cython.cast(_Bytes, view.buf)
        total: cython.Py_ssize_t = count
        position: cython.Py_ssize_t = start
        # A moved delta may take ten bytes instead of one, and the length before it four more.
        capacity: cython.Py_ssize_t = _HEADER_SIZE + end - start + (14 * total if shift else 0)
        out: bytearray = bytearray(_HEADER_SIZE)
        PyByteArray_Resize(out, capacity)
        room: _Room = cython.cast(_Room, PyByteArray_AS_STRING(out))
        used: cython.Py_ssize_t = _HEADER_SIZE
        for index in range(total):
            if not read_record(data, position, end, cython.address(s)):
                _raise_malformed(index)
            position = s.end
            if not chosen[index]:
                continue
            if kept == 0:
                first = greatest = s.timestamp_delta
            elif s.timestamp_delta > greatest:
                greatest = s.timestamp_delta
            kept += 1
            if shift == 0:
                memcpy(room + used, data + s.begin, s.end - s.begin)
                used += s.end - s.begin
                continue
            moved = cython.cast(int64_t, cython.cast(uint64_t, s.timestamp_delta) + cython.cast(uint64_t, shift))
            rest = s.end - s.after_timestamp
            used = _write_number(room, used, 1 + size_of(moved) + rest)
            room[used] = data[s.body]
            used = _write_number(room, used + 1, moved)
            memcpy(room + used, data + s.after_timestamp, rest)
            used += rest
        if position != end:
            _raise_left_over(end - position, count)
        PyByteArray_Resize(out, used)
    finally:
        PyBuffer_Release(cython.address(view))
    return out, kept, first, greatest


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_number(room: _Room, position: cython.Py_ssize_t, value: int64_t) -> cython.Py_ssize_t:
    return write_number(room + position, value) - room


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_field(field: object) -> cython.Py_ssize_t:
    if field is None:
        return 1
    return size_of(PyBytes_GET_SIZE(field)) + PyBytes_GET_SIZE(field)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_field(room: _Room, position: cython.Py_ssize_t, field: object) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t
    if field is None:
        room[position] = 1
        return position + 1
    size = PyBytes_GET_SIZE(field)
    position = _write_number(room, position, size)
    memcpy(room + position, PyBytes_AS_STRING(field), size)
    return position + size


@cython.cfunc
@cython.inline
def _as_bytes(field: object) -> object:
    """None, or the field as bytes, which it mostly is already."""
    if field is None or type(field) is bytes:
        return field
    return bytes(memoryview(field))


def encode_records(records: object, offset_deltas: object) -> tuple:
    """Records of (timestamp, key, value, headers): (61 bytes for a header and the records, how many, base and max
    timestamp, last offset delta)."""
    base_timestamp: int64_t = -1
    max_timestamp: int64_t = -1
    timestamp: int64_t
    delta: int64_t
    last: int32_t = -1
    count: cython.Py_ssize_t = 0
    body: cython.Py_ssize_t
    used: cython.Py_ssize_t = _HEADER_SIZE
    capacity: cython.Py_ssize_t = 1024
    out: bytearray = bytearray(_HEADER_SIZE)
    key: object
    value: object
    headers: object
    pairs: object
    PyByteArray_Resize(out, capacity)
    for timestamp, key, value, headers in records:
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        last = count if offset_deltas is None else offset_deltas[count]
        count += 1
        delta = cython.cast(int64_t, cython.cast(uint64_t, timestamp) - cython.cast(uint64_t, base_timestamp))
        key = _as_bytes(key)
        value = _as_bytes(value)
        pairs = _encoded_headers(headers) if headers else None
        body = 1 + size_of(delta) + size_of(last) + _size_of_field(key) + _size_of_field(value)
        body += _size_of_headers(pairs) if pairs is not None else 1
        if capacity - used < body + 10:
            capacity = 2 * capacity + body + 10
            PyByteArray_Resize(out, capacity)
        used = _write_record(cython.cast(_Room, PyByteArray_AS_STRING(out)), used, body, delta, last, key, value, pairs)
    PyByteArray_Resize(out, used)
    return out, count, base_timestamp, max_timestamp, last


def append_record(
    out: bytearray, delta: int64_t, index: int32_t, key: object, value: object, headers: object
) -> object:
    """Add a record to those in `out`, which grows as it must: how many bytes it takes."""
    pairs: object
    key = _as_bytes(key)
    value = _as_bytes(value)
    pairs = _encoded_headers(headers) if headers else None
    body: cython.Py_ssize_t = 1 + size_of(delta) + size_of(index) + _size_of_field(key) + _size_of_field(value)
    body += _size_of_headers(pairs) if pairs is not None else 1
    used: cython.Py_ssize_t = PyByteArray_GET_SIZE(out)
    size: cython.Py_ssize_t = size_of(body) + body
    if cython.cast(cython.pointer(PyByteArrayObject), out).ob_alloc <= used + size:
        PyByteArray_Resize(out, 2 * (used + size))  # by itself it would grow by an eighth
    PyByteArray_Resize(out, used + size)
    _write_record(cython.cast(_Room, PyByteArray_AS_STRING(out)), used, body, delta, index, key, value, pairs)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_record(
    room: _Room,
    used: cython.Py_ssize_t,
    body: cython.Py_ssize_t,
    delta: int64_t,
    offset_delta: int32_t,
    key: object,
    value: object,
    pairs: object,
) -> cython.Py_ssize_t:
    used = _write_number(room, used, body)
    room[used] = 0
    used = _write_number(room, used + 1, delta)
    used = _write_number(room, used, offset_delta)
    used = _write_field(room, used, key)
    used = _write_field(room, used, value)
    if pairs is None:
        room[used] = 0
        return used + 1
    fields: list = pairs
    used = _write_number(room, used, len(fields) // 2)
    for field in fields:
        used = _write_field(room, used, field)
    return used


@cython.cfunc
def _encoded_headers(headers: object) -> list:
    """Name, value, name, value... as bytes or None."""
    pairs: list = []
    name: object
    value: object
    for name, value in headers:
        pairs.append(name.encode())
        pairs.append(_as_bytes(value))
    return pairs


@cython.cfunc
def _size_of_headers(pairs: list) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = size_of(len(pairs) // 2)
    for field in pairs:
        size += _size_of_field(field)
    return size


def murmur2(key: object) -> object:
    """Kafka's 32-bit MurmurHash2 of a key, with its seed, as an unsigned number."""
    view: Py_buffer
    PyObject_GetBuffer(key, cython.address(view), PyBUF_SIMPLE)
    hashed: uint32_t = hash_key(cython.cast(_Bytes, view.buf), view.len)
    PyBuffer_Release(cython.address(view))
    return hashed
