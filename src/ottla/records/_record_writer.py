# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Writes records from tuples, or copies the retained records of another batch; also has the murmur2 hash.

One source for C and Python: Cython compiles this file with the types of `_record_writer.pxd`. `Bytes` and `Memory` are
pointers in C, and memoryviews and bytearrays in Python; both are indexed in the same way.

Every function reserves 61 bytes for the batch header before the first record; `encode_batch` and `seal` fill them in.
Deltas wrap at 64 bits, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.records._record_reader import raise_left_over, raise_malformed

if not cython.compiled:
    from ottla.records._record_reader import check_span, read_record, view_of
    from ottla.records.batch import wrap64
    from ottla.records.record_fields import RecordFields

    Bytes: TypeAlias = memoryview
    Memory: TypeAlias = bytearray
    Buffer: TypeAlias = bytes | bytearray | memoryview
    Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]
    # 61 bytes for a header and the records, number of records, base and max timestamp, last offset delta.
    Encoded: TypeAlias = tuple[bytearray, int, int, int, int]


_HEADER_SIZE = 61
_MURMUR2_SEED = 0x9747B28C


def _resize(out: bytearray, size: int) -> None:
    """Change the size of `out`; the contents of new bytes are undefined."""
    if cython.compiled:
        PyByteArray_Resize(out, size)
    elif size < len(out):
        del out[size:]
    else:
        out.extend(bytes(size - len(out)))


def _memory(out: bytearray) -> Memory:
    """Return the memory of `out`, which is valid until its size changes."""
    if cython.compiled:
        return cython.cast(Memory, PyByteArray_AS_STRING(out))
    return out


def _copy(target: Memory, position: int, data: Bytes, start: int, size: int) -> int:
    """Copy bytes; return the position after them."""
    if cython.compiled:
        memcpy(target + position, data + start, size)
    else:
        target[position : position + size] = data[start : start + size]
    return position + size


def _zigzag(value: int) -> int:
    return (value << 1) ^ (value >> 63)


def _size_of(value: int) -> int:
    """Return the size of a zigzag number in bytes."""
    rest = _zigzag(value)
    size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


def _write_number(target: Memory, position: int, value: int) -> int:
    """Write a zigzag number; return the position after it."""
    rest = _zigzag(value)
    while rest >= 0x80:
        target[position] = rest & 0x7F | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1


def _size_of_field(size: int) -> int:
    """Return the size of a field with its length prefix; a negative `size` is null."""
    return 1 if size < 0 else _size_of(size) + size


def murmur2(key: Buffer) -> int:
    """Return the 32-bit MurmurHash2 of a key with Kafka's seed, as an unsigned number."""
    if cython.compiled and type(key) is bytes:
        return hash_of(cython.cast(Bytes, PyBytes_AS_STRING(key)), 0, PyBytes_GET_SIZE(key))
    view = view_of(key)
    return hash_of(view.data, 0, view.size)


def _low32(number: int) -> int:
    if cython.compiled:
        return number
    return number & 0xFFFFFFFF


def _word_at(data: Bytes, position: int) -> int:
    """Return four bytes as a number, the lowest byte first."""
    # The C compiler combines the four reads into one only if all indexes are constants.
    if cython.compiled:
        word = data + position
    else:
        word = data[position : position + 4]
    return word[0] | word[1] << 8 | word[2] << 16 | word[3] << 24


def hash_of(data: Bytes, position: int, size: int) -> int:
    """Return MurmurHash2 of `size` bytes: first words of four bytes, then the rest, in 32-bit arithmetic."""
    hashed = _low32(_MURMUR2_SEED ^ size)
    end = position + (size & ~3)
    while position < end:
        word = _low32(_word_at(data, position) * 0x5BD1E995)
        word = _low32((word ^ word >> 24) * 0x5BD1E995)
        hashed = _low32(hashed * 0x5BD1E995) ^ word
        position += 4
    rest = size & 3
    if rest:
        if rest == 3:
            hashed ^= data[position + 2] << 16
        if rest >= 2:
            hashed ^= data[position + 1] << 8
        hashed = _low32((hashed ^ data[position]) * 0x5BD1E995)
    hashed = _low32((hashed ^ hashed >> 13) * 0x5BD1E995)
    return hashed ^ hashed >> 15


def keep_records(
    buffer: Buffer, start: int, end: int, count: int, mask: bytes, shift: int
) -> tuple[bytearray, int, int, int]:
    """Copy the records whose byte in `mask` is not 0.

    Returns (61 bytes and the records, number of records, first timestamp delta, greatest timestamp delta). `shift` is
    added to the timestamp deltas that are written, but not to the returned ones.
    """
    view = view_of(buffer)
    check_span(view.size, start, end, count)
    if len(mask) != count:
        raise ValueError(f"The mask has {len(mask)} bytes for {count} records")
    if cython.compiled:
        record = cython.address(fields)
        chosen = cython.cast(Bytes, PyBytes_AS_STRING(mask))
    else:
        record = RecordFields()
        chosen = memoryview(mask)
    data = view.data
    kept = 0
    first = 0
    greatest = 0
    out = bytearray(_HEADER_SIZE)
    # A shifted delta may take nine bytes more, and the length prefix four bytes more.
    _resize(out, _HEADER_SIZE + end - start + (14 * count if shift else 0))
    target = _memory(out)
    used = _HEADER_SIZE
    position = start
    for index in range(count):
        if not read_record(data, position, end, record):
            raise_malformed(index)
        position = record.end
        if not chosen[index]:
            continue
        if kept == 0:
            first = greatest = record.timestamp_delta
        elif record.timestamp_delta > greatest:
            greatest = record.timestamp_delta
        kept += 1
        if shift == 0:
            used = _copy(target, used, data, record.begin, record.end - record.begin)
            continue
        moved = wrap64(record.timestamp_delta + shift)
        rest = record.end - record.after_timestamp
        used = _write_number(target, used, 1 + _size_of(moved) + rest)
        target[used] = data[record.body]
        used = _write_number(target, used + 1, moved)
        used = _copy(target, used, data, record.after_timestamp, rest)
    if position != end:
        raise_left_over(end - position, count)
    _resize(out, used)
    return out, kept, first, greatest


def encode_records(records: Iterable[tuple[int, Any, Any, Any]], offset_deltas: Sequence[int] | None) -> Encoded:
    """Encode records given as (timestamp, key, value, headers). Without records, timestamps and last delta are -1.

    The key, the value and a header's value may be None or any buffer; a header's key is a str. If `offset_deltas` is
    None, the offset deltas are 0, 1, 2...
    """
    base_timestamp = -1
    max_timestamp = -1
    last = -1
    count = 0
    used = _HEADER_SIZE
    capacity = 1024
    out = bytearray(_HEADER_SIZE)
    _resize(out, capacity)
    for timestamp, key, value, headers in records:
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        last = count if offset_deltas is None else offset_deltas[count]
        count += 1
        delta = wrap64(timestamp - base_timestamp)
        key = _as_bytes(key)
        value = _as_bytes(value)
        pairs = _encode_headers(headers) if headers else None
        body = _size_of_body(delta, last, key, value, pairs)
        if capacity - used < body + 10:
            capacity = 2 * capacity + body + 10
            _resize(out, capacity)
        used = _write_start(_memory(out), used, body, delta, last)
        used = _write_fields(_memory(out), used, key, value, pairs)
    _resize(out, used)
    return out, count, base_timestamp, max_timestamp, last


def append_record(
    out: bytearray, delta: int, index: int, key: Buffer | None, value: Buffer | None, headers: Headers | None
) -> int:
    """Append a record to those in `out`, with fields as in `encode_records`; return its size in bytes."""
    key = _as_bytes(key)
    value = _as_bytes(value)
    pairs = _encode_headers(headers) if headers else None
    body = _size_of_body(delta, index, key, value, pairs)
    used = len(out)
    size = _size_of(body) + body
    if cython.compiled and cython.cast(ByteArrayPointer, out).ob_alloc <= used + size:
        # A bytearray alone would grow only by an eighth.
        _resize(out, 2 * (used + size))
    _resize(out, used + size)
    used = _write_start(_memory(out), used, body, delta, index)
    _write_fields(_memory(out), used, key, value, pairs)
    return size


def _as_bytes(field: Buffer | None) -> bytes | None:
    """Return the field as bytes, or None."""
    if field is None or type(field) is bytes:
        return field
    return bytes(memoryview(field))


def _length(field: bytes) -> int:
    # Cython would compile `len` of an untyped object to a call that can fail.
    if cython.compiled:
        return PyBytes_GET_SIZE(field)
    return len(field)


def _encode_headers(headers: Headers) -> list[bytes | None]:
    """Return names and values in turn, as bytes or None."""
    pairs: list[bytes | None] = []
    for name, value in headers:
        pairs.append(name.encode())
        pairs.append(_as_bytes(value))
    return pairs


def _size_of_bytes(field: bytes | None) -> int:
    return 1 if field is None else _size_of_field(_length(field))


def _size_of_body(
    delta: int, index: int, key: bytes | None, value: bytes | None, pairs: list[bytes | None] | None
) -> int:
    """Return the size of a record without its length prefix."""
    body = 1 + _size_of(delta) + _size_of(index) + _size_of_bytes(key) + _size_of_bytes(value)
    if pairs is None:
        return body + 1
    body += _size_of(len(pairs) >> 1)
    for field in pairs:
        body += _size_of_bytes(field)
    return body


def _write_start(target: Memory, position: int, body: int, delta: int, index: int) -> int:
    """Write the start of a record whose size without its length prefix is `body`; return the position after it."""
    position = _write_number(target, position, body)
    target[position] = 0
    position = _write_number(target, position + 1, delta)
    return _write_number(target, position, index)


def _write_fields(
    target: Memory, position: int, key: bytes | None, value: bytes | None, pairs: list[bytes | None] | None
) -> int:
    """Write the fields that follow the start of a record; return the position after them."""
    position = _write_bytes(target, position, key)
    position = _write_bytes(target, position, value)
    if pairs is None:
        target[position] = 0
        return position + 1
    position = _write_number(target, position, len(pairs) >> 1)
    for field in pairs:
        position = _write_bytes(target, position, field)
    return position


def _write_bytes(target: Memory, position: int, field: bytes | None) -> int:
    """Write a field with its length; return the position after it."""
    if field is None:
        target[position] = 1
        return position + 1
    size = _length(field)
    position = _write_number(target, position, size)
    if cython.compiled:
        memcpy(target + position, PyBytes_AS_STRING(field), size)
    else:
        target[position : position + size] = field
    return position + size
