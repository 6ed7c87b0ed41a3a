# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Reads the records of a batch: checks their structure, decodes them, or decodes their keys.

One source for C and Python: Cython compiles this file with the types of `_record_reader.pxd`. `Bytes` is a pointer in C
and a memoryview in Python; both are indexed in the same way. Functions take `data[start:end]`, which contains
uncompressed records.

An invalid structure raises KafkaError(INVALID_RECORD), as in Kafka. Memory for a length or a count is allocated only
after checking that the bytes exist, and nothing outside `data[start:end]` is read. Every function holds the GIL, and
its cost is bounded by its input.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

if not cython.compiled:
    from ottla.records.batch import EncodedRecords, wrap64
    from ottla.records.record_fields import RecordFields, WalkResult

    Bytes: TypeAlias = memoryview
    Buffer: TypeAlias = bytes | bytearray | memoryview


COMPILED: bool = cython.compiled

_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_MIN_BATCH_LENGTH = 49
# The length, attributes, two deltas, key, value and header count take at least one byte each.
_MIN_RECORD_SIZE = 7
_CRC_START = 21
# Every attribute of a batch except that it is part of a transaction.
_NOT_TRANSACTIONAL = 0xEF
# The library computes the CRC of larger batches faster.
_LARGEST_OWN_CRC = 4096
_FARTHEST = 1 << 62
MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
if cython.compiled:
    _COMPUTES_CRC = bool(ottla_computes_crc())
else:
    _COMPUTES_CRC = False


class BufferView:
    """Holds a buffer, and points to its bytes, until it is deallocated."""

    data: Bytes
    size: int

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyBuffer_Release(cython.address(self._view))


def view_of(buffer: Buffer) -> BufferView:
    # A constructor with arguments would allocate a tuple.
    view = BufferView.__new__(BufferView)
    if cython.compiled:
        PyObject_GetBuffer(buffer, cython.address(view._view), PyBUF_SIMPLE)
        view.data = cython.cast(Bytes, view._view.buf)
        view.size = view._view.len
    else:
        view.data = memoryview(buffer).cast("B")
        view.size = len(view.data)
    return view


def read_uint32(data: Bytes, position: int) -> int:
    return (data[position] << 24 | data[position + 1] << 16 | data[position + 2] << 8 | data[position + 3]) & MASK32


def read_int64(data: Bytes, position: int) -> int:
    if cython.compiled:
        return cython.cast(uint64_t, read_uint32(data, position)) << 32 | read_uint32(data, position + 4)
    return wrap64(read_uint32(data, position) << 32 | read_uint32(data, position + 4))


def int32_of(number: int) -> int:
    if cython.compiled:
        return cython.cast(int32_t, number)
    return (number ^ 0x80000000) - 0x80000000


def read_number(data: Bytes, position: int, end: int, bits: int, record: RecordFields) -> int:
    """Read a zigzag number of 32 or 64 bits into `record.number`; return the position after it, or -1 if malformed."""
    rest = 0
    shift = 0
    while True:
        if position >= end:
            return -1
        byte = data[position]
        position += 1
        if cython.compiled:
            rest |= cython.cast(uint64_t, byte & 0x7F) << shift
        else:
            rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits + 3:
            return -1
    rest &= MASK32 if bits == 32 else MASK64
    record.number = (rest >> 1) ^ -(rest & 1)
    return position


def _read_short(data: Bytes, position: int, record: RecordFields) -> int:
    """Read a varint of at most three bytes into `record.number`, or -1 if it is longer; return the position after it.

    All three bytes must be within the buffer.
    """
    first = data[position]
    if first < 0x80:
        record.number = first
        return position + 1
    second = data[position + 1]
    if second < 0x80:
        record.number = first & 0x7F | second << 7
        return position + 2
    third = data[position + 2]
    record.number = first & 0x7F | (second & 0x7F) << 7 | third << 14 if third < 0x80 else -1
    return position + 3


def read_record(data: Bytes, position: int, end: int, record: RecordFields) -> bool:
    """Read the record at `position`, and check its headers; return false if it is malformed.

    Most records consist of short numbers, for which `_read_short_record` takes half the time. So it comes first.
    """
    return _read_short_record(data, position, end, record) or _read_any_record(data, position, end, record)


def _read_short_record(data: Bytes, position: int, end: int, record: RecordFields) -> bool:
    """Read a well-formed record whose numbers have at most three bytes; return false for any other record.

    The position of a record depends on the length of the previous one, so the latency of each step counts. Bounds are
    therefore checked rarely: a record of at least ten bytes has room for the attributes and three short numbers.
    `record` must stay in registers, so pass it only to functions that the C compiler inlines.
    """
    if end - position < 3:
        return False
    record.begin = position
    position = _read_short(data, position, record)
    record.body = position
    # In zigzag encoding, an odd number is negative.
    if record.number & 1 or record.number < 2 * 10 or record.number >> 1 > end - position:
        return False
    end = position + (record.number >> 1)
    record.end = end
    position = _read_short(data, position + 1, record)
    record.after_timestamp = position
    if record.number < 0:
        return False
    record.timestamp_delta = (record.number >> 1) ^ -(record.number & 1)
    position = _read_short(data, position, record)
    if record.number < 0:
        return False
    record.offset_delta = (record.number >> 1) ^ -(record.number & 1)
    position = _read_short(data, position, record)
    record.key = position
    if record.number == 1:
        record.key_size = -1
    elif record.number & 1:
        return False
    else:
        record.key_size = record.number >> 1
        position += record.key_size
    if end - position < 4:
        return False
    position = _read_short(data, position, record)
    record.value = position
    record.value_size = record.number >> 1
    if record.number & 1 or record.value_size >= end - position:
        return False
    position += record.value_size
    count = data[position]
    record.header_count = count >> 1
    record.headers = position + 1
    if count == 0:
        return position + 1 == end
    return not count & 0x81 and _headers_fill(data, position + 1, end, record.header_count)


def _read_any_record(data: Bytes, position: int, end: int, record: RecordFields) -> bool:
    """Read any record; return false if it is malformed."""
    record.begin = position
    position = read_number(data, position, end, 32, record)
    if position < 0 or record.number <= 0 or record.number > end - position:
        return False
    end = position + record.number
    record.body = position
    record.end = end
    position = read_number(data, position + 1, end, 64, record)
    if position < 0:
        return False
    record.timestamp_delta = record.number
    record.after_timestamp = position
    position = read_number(data, position, end, 32, record)
    if position < 0:
        return False
    record.offset_delta = record.number
    position = read_number(data, position, end, 32, record)
    if position < 0 or record.number > end - position:
        return False
    record.key = position
    record.key_size = record.number
    position += max(0, record.number)
    position = read_number(data, position, end, 32, record)
    if position < 0 or record.number > end - position:
        return False
    record.value = position
    record.value_size = record.number
    position += max(0, record.number)
    position = read_number(data, position, end, 32, record)
    # A header takes at least two bytes.
    if position < 0 or record.number < 0 or record.number > (end - position) >> 1:
        return False
    record.header_count = record.number
    record.headers = position
    return _headers_fill(data, position, end, record.header_count)


def _headers_fill(data: Bytes, position: int, end: int, count: int) -> bool:
    """Return whether `count` well-formed headers fill the bytes up to `end`."""
    if cython.compiled:
        header = cython.address(fields)
    else:
        header = RecordFields()
    for _ in range(count):
        position = read_number(data, position, end, 32, header)
        if position < 0 or header.number < 0 or header.number > end - position:
            return False
        position = read_number(data, position + header.number, end, 32, header)
        if position < 0 or header.number > end - position:
            return False
        position += max(0, header.number)
    return position == end


def raise_malformed(index: int) -> None:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"Record {index} of the batch is malformed")


def raise_left_over(left: int, count: int) -> None:
    raise KafkaError(ErrorCode.INVALID_RECORD, f"{left} bytes follow the {count} records of the batch")


def check_span(size: int, start: int, end: int, count: int) -> None:
    """Raise IndexError for a wrong span, and KafkaError for a count that does not fit the span."""
    if start < 0 or end > size or start > end:
        raise IndexError(f"{start}:{end} is not within {size} bytes")
    if count < 0 or count > (end - start) // _MIN_RECORD_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{count} records cannot be in {end - start} bytes")


def _walk(data: Bytes, position: int, end: int, count: int, result: WalkResult) -> None:
    """Read up to `count` records, and stop at the first malformed one.

    This loop takes most of the time of validating a produced batch. It allocates nothing.
    """
    if cython.compiled:
        record = cython.address(fields)
        unusual = cython.address(more_fields)
    else:
        record = unusual = RecordFields()
    index = 0
    least = 0
    greatest = 0
    null_keys = 0
    misplaced = 0
    while index < count:
        if not _read_short_record(data, position, end, record):
            # This function is not inlined, so it gets separate fields.
            if not _read_any_record(data, position, end, unusual):
                break
            if cython.compiled:
                record[0] = unusual[0]
        position = record.end
        if index == 0 or record.timestamp_delta < least:
            least = record.timestamp_delta
        if index == 0 or record.timestamp_delta > greatest:
            greatest = record.timestamp_delta
        null_keys += record.key_size < 0
        misplaced += record.offset_delta != index
        index += 1
    result.sound = index
    result.position = position
    result.least = least
    result.greatest = greatest
    result.null_keys = null_keys
    result.misplaced = misplaced


def walk_records(buffer: Buffer, start: int, end: int, count: int) -> tuple[int, int, int, int]:
    """Check `count` records; return (least, greatest timestamp delta, records without key, records out of order).

    A record is out of order if its offset delta is not its index. An empty batch yields zeros.
    """
    view = view_of(buffer)
    check_span(view.size, start, end, count)
    if cython.compiled:
        found = cython.address(result)
    else:
        found = WalkResult()
    _walk(view.data, start, end, count, found)
    if found.sound < count:
        raise_malformed(found.sound)
    if found.position != end:
        raise_left_over(end - found.position, count)
    return found.least, found.greatest, found.null_keys, found.misplaced


def plain_batch(buffer: Buffer, most_bytes: int, make: type[Any]) -> Any:
    """Validate a plain batch; return (header as `make`, least and greatest timestamp, records without key).

    A plain batch is alone in the buffer and has at most `most_bytes`, no attribute except that it is transactional,
    offsets from 0 on, a valid CRC and well-formed records. For any other batch the result is None, and the caller
    examines it in detail.
    """
    view = view_of(buffer)
    if not _HEADER_SIZE <= view.size <= most_bytes or view.data[21] or view.data[22] & _NOT_TRANSACTIONAL:
        return None
    if cython.compiled and _COMPUTES_CRC and view.size <= _LARGEST_OWN_CRC:
        crc = ottla_crc32c(view.data + _CRC_START, view.size - _CRC_START)
    else:
        crc = crc32c(memoryview(buffer)[_CRC_START:])
    return _plain_batch(view.data, view.size, crc, make)


def _plain_batch(data: Bytes, end: int, crc: int, make: type[Any]) -> Any:
    count = int32_of(read_uint32(data, 57))
    base_timestamp = read_int64(data, 27)
    producer_id = read_int64(data, 43)
    base_sequence = int32_of(read_uint32(data, 53))
    if (
        read_int64(data, 0) != 0
        or read_uint32(data, 8) != end - _LOG_OVERHEAD
        or data[16] != 2
        or count <= 0
        or count > end
        or int32_of(read_uint32(data, 23)) != count - 1
        or (producer_id >= 0 and base_sequence < 0)
        or not -_FARTHEST < base_timestamp < _FARTHEST
        or read_uint32(data, 17) != crc
    ):
        return None
    if cython.compiled:
        found = cython.address(result)
    else:
        found = WalkResult()
    _walk(data, _HEADER_SIZE, end, count, found)
    if (
        found.sound < count
        or found.position != end
        or found.misplaced
        or not -_FARTHEST < found.least <= found.greatest < _FARTHEST
    ):
        return None
    epoch = int32_of(read_uint32(data, 12))
    max_timestamp = read_int64(data, 35)
    producer_epoch = (data[51] << 8 | data[52]) - ((data[51] & 0x80) << 9)
    if cython.compiled:
        # As tuple.__new__, but without a tuple of arguments.
        header = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), make), 13)
        _fill(header, 0, 0)
        _fill(header, 1, end - _LOG_OVERHEAD)
        _fill(header, 2, epoch)
        _fill(header, 3, 2)
        _fill(header, 4, crc)
        _fill(header, 5, data[22])
        _fill(header, 6, count - 1)
        _fill(header, 7, base_timestamp)
        _fill(header, 8, max_timestamp)
        _fill(header, 9, producer_id)
        _fill(header, 10, producer_epoch)
        _fill(header, 11, base_sequence)
        _fill(header, 12, count)
    else:
        header = make(
            0, end - _LOG_OVERHEAD, epoch, 2, crc, data[22], count - 1,
            base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
        )  # fmt: skip
    return header, base_timestamp + found.least, base_timestamp + found.greatest, found.null_keys


def _fill(row: Any, index: int, value: Any) -> None:
    """Set a field of a tuple under construction; only compiled code does this."""
    if cython.compiled:
        Py_INCREF(value)
        PyTuple_SET_ITEM(row, index, value)


def _part(data: Bytes, start: int, size: int) -> bytes | None:
    """Return the bytes of a field, or None for a null field."""
    if size < 0:
        return None
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + start), size)
    return bytes(data[start : start + size])


def _read_headers(data: Bytes, record: RecordFields) -> list[tuple[str, bytes | None]]:
    """Return the headers of a checked record. Bytes of a name that are not UTF-8 are replaced."""
    position = record.headers
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(record.header_count):
        position = read_number(data, position, record.end, 32, record)
        name_size = record.number
        if cython.compiled:
            name = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, data + position), name_size, b"replace")
        else:
            name = str(data[position : position + name_size], "utf-8", "replace")
        position = read_number(data, position + name_size, record.end, 32, record)
        headers.append((name, _part(data, position, record.number)))
        position += max(0, record.number)
    return headers


def decode_records(records: EncodedRecords, make: type[Any]) -> list[Any]:
    """Return the records as instances of `make`, a NamedTuple of offset, timestamp, key, value, headers."""
    if not issubclass(make, tuple):
        raise TypeError(f"{make} is not a NamedTuple")
    if cython.compiled:
        # Records cannot be part of reference cycles, and garbage collection would cost more than decoding.
        collects = PyGC_Disable()
    try:
        return _decode_records(records, make)
    finally:
        if cython.compiled and collects:
            PyGC_Enable()


def _decode_records(records: EncodedRecords, make: type[Any]) -> list[Any]:
    buffer, start, end, count, base_offset, base_timestamp, append_time = records
    view = view_of(buffer)
    check_span(view.size, start, end, count)
    if cython.compiled:
        record = cython.address(fields)
    else:
        record = RecordFields()
    data = view.data
    rows = []
    position = start
    for index in range(count):
        if not read_record(data, position, end, record):
            raise_malformed(index)
        position = record.end
        offset = wrap64(base_offset + record.offset_delta)
        key = _part(data, record.key, record.key_size)
        value = _part(data, record.value, record.value_size)
        headers = _read_headers(data, record) if record.header_count else []
        if append_time is None:
            timestamp = wrap64(base_timestamp + record.timestamp_delta)
            rows.append(_make_record(make, offset, timestamp, key, value, headers))
        else:
            rows.append(_make_record(make, offset, append_time, key, value, headers))
    if position != end:
        raise_left_over(end - position, count)
    return rows


def _make_record(
    make: type[Any],
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> Any:
    if cython.compiled:
        # As tuple.__new__, but without a tuple of arguments.
        row = PyType_GenericAlloc(cython.cast(cython.pointer(PyTypeObject), make), 5)
        _fill(row, 0, offset)
        _fill(row, 1, timestamp)
        _fill(row, 2, key)
        _fill(row, 3, value)
        _fill(row, 4, headers)
        # A record cannot be part of a cycle, so the collector need not track it, nor its empty list of headers.
        PyObject_GC_UnTrack(cython.cast(cython.p_void, row))
        if not headers:
            PyObject_GC_UnTrack(cython.cast(cython.p_void, headers))
    else:
        row = make(offset, timestamp, key, value, headers)
    return row


def decode_keys(
    buffer: Buffer, start: int, end: int, count: int, base_offset: int
) -> list[tuple[int, bytes | None, bool]]:
    """Return (offset, key, whether the value is not null) of every record, for compaction."""
    view = view_of(buffer)
    check_span(view.size, start, end, count)
    if cython.compiled:
        record = cython.address(fields)
    else:
        record = RecordFields()
    data = view.data
    rows = []
    position = start
    for index in range(count):
        if not read_record(data, position, end, record):
            raise_malformed(index)
        position = record.end
        offset = wrap64(base_offset + record.offset_delta)
        rows.append((offset, _part(data, record.key, record.key_size), record.value_size >= 0))
    if position != end:
        raise_left_over(end - position, count)
    return rows
