# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Finds the keys or values of a batch, and the schema ids before them in Confluent's wire format.

One source for C and Python: Cython compiles this file with the types of `_framed_fields.pxd`. `framed_fields` exports
it. It is separate from the other kernels, because only topics with schema validation need it.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.records._record_reader import raise_left_over, raise_malformed

if not cython.compiled:
    from ottla.records._record_reader import check_span, read_record, read_uint32, view_of
    from ottla.records.record_fields import RecordFields

    Int64s: TypeAlias = memoryview
    Buffer: TypeAlias = bytes | bytearray | memoryview

_NULL = -1
_UNFRAMED = -2
_FRAME_SIZE = 5


def find_fields(buffer: Buffer, start: int, end: int, count: int, of_keys: bool) -> tuple[bytearray, list[int]]:
    """Return the ids and places of the keys or the values of `count` records, and each different id once.

    The first result has `count` integers of 64 bits each for the ids, for the positions where the fields start, and
    for the positions where they end. The id of a null field is -1. It is -2 if the field does not begin with a zero
    byte and four bytes of id.
    """
    view = view_of(buffer)
    check_span(view.size, start, end, count)
    out = bytearray(24 * count)
    if cython.compiled:
        record = cython.address(fields)
        numbers = cython.cast(Int64s, PyByteArray_AS_STRING(out))
    else:
        record = RecordFields()
        numbers = memoryview(out).cast("q")
    data = view.data
    seen: dict[int, None] = {}
    last = _UNFRAMED - 1
    position = start
    for index in range(count):
        if not read_record(data, position, end, record):
            raise_malformed(index)
        position = record.end
        if of_keys:
            field = record.key
            size = record.key_size
        else:
            field = record.value
            size = record.value_size
        if size < 0:
            schema_id = _NULL
            size = 0
        elif size < _FRAME_SIZE or data[field] != 0:
            schema_id = _UNFRAMED
        else:
            schema_id = read_uint32(data, field + 1)
        if schema_id != last:
            seen[schema_id] = None
            last = schema_id
        numbers[index] = schema_id
        numbers[count + index] = field
        numbers[2 * count + index] = field + size
    if position != end:
        raise_left_over(end - position, count)
    return out, list(seen)
