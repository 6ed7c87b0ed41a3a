# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Encodes messages by walking their `Shape`.

One source for C and Python: Cython compiles this file with the types of `_encoding.pxd`. `Memory` is a pointer there
and a bytearray here; both are indexed alike.

Every function holds the GIL. A value that a version cannot carry raises EncodeError.
"""

from __future__ import annotations

from operator import index as index_of
from struct import error as struct_error
from struct import pack
from typing import Any, TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.protocol.declaration import DeclaredMessage, DeclaredStruct, has_tagged_head
from ottla.protocol.wire import COPY_BELOW, MAX_STRING, Buffer, EncodeError

if not cython.compiled:
    from ottla.protocol._shapes import (
        BOOL,
        CONSTANT,
        FLOAT64,
        NEW_LIST,
        RECORDS,
        STR,
        STRUCT,
        UUID,
        Field,
        Shape,
        shape_of,
    )

    Memory: TypeAlias = bytearray

_MAX_STRING = MAX_STRING
_COPY_BELOW = COPY_BELOW
_FIRST_CAPACITY = 256
_MASK32 = 0xFFFFFFFF
# The byte of a struct that is null. Kafka has another one in tagged fields.
_NULL = 0xFF
_NULL_IN_TAG = 0


class Writer:
    """Memory that grows, of which `size` bytes are written, and the parts of the message before it.

    `tagged_depth` is above 0 inside a tagged field. Its size precedes it, so all of it is copied to this memory.
    """

    data: Memory
    size: int
    capacity: int
    tagged_depth: int
    flexible: bool
    parts: list[Any]

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyMem_Free(self.data)


def _get(shape: Shape, source: Any, field: Field) -> Any:
    """The value of a field of a struct, or of an object with the same attributes."""
    if cython.compiled and type(source) is shape.cls:
        place = cython.cast(SlotPointer, cython.cast(cython.p_char, cython.cast(ObjectPointer, source)) + field.slot)[0]
        if place == cython.NULL:
            raise AttributeError(field.name)
        return cython.cast(object, place)
    return getattr(source, field.name)


def _grow(w: Writer, more: int) -> None:
    capacity = 2 * w.capacity + more
    if cython.compiled:
        grown = PyMem_Realloc(w.data, capacity)
        if grown == cython.NULL:
            raise MemoryError
        w.data = cython.cast(Memory, grown)
    else:
        w.data.extend(bytes(capacity - w.capacity))
    w.capacity = capacity


def _reserve(w: Writer, more: int) -> None:
    if w.capacity - w.size < more:
        _grow(w, more)


def _put_number(data: Memory, at: int, value: int, width: int) -> None:
    """Write the low bytes of a number, the highest first."""
    if cython.compiled:
        shift = 8 * width
        while shift:
            shift -= 8
            data[at] = cython.cast(uint8_t, value >> shift & 0xFF)
            at += 1
    else:
        data[at : at + width] = value.to_bytes(width, "big", signed=value < 0)


def _put(w: Writer, value: int, width: int) -> None:
    """Append the low bytes of a number. The caller has reserved them."""
    _put_number(w.data, w.size, value, width)
    w.size += width


def _put_bytes(w: Writer, value: bytes, size: int) -> None:
    """Append bytes. The caller has reserved them."""
    if cython.compiled:
        memcpy(w.data + w.size, PyBytes_AS_STRING(value), size)
    else:
        w.data[w.size : w.size + size] = value
    w.size += size


def _put_buffer(w: Writer, field: Field, value: Buffer, size: int) -> None:
    """Append the bytes of any buffer. The caller has reserved them."""
    if cython.compiled:
        PyObject_GetBuffer(value, cython.address(view), PyBUF_SIMPLE)
        if view.len != size:
            PyBuffer_Release(cython.address(view))
            raise TypeError(f"{field.name} does not contain bytes")
        memcpy(w.data + w.size, view.buf, size)
        PyBuffer_Release(cython.address(view))
    else:
        data = memoryview(value)
        if data.nbytes != size:
            raise TypeError(f"{field.name} does not contain bytes")
        w.data[w.size : w.size + size] = data.cast("B")
    w.size += size


def _put_double(w: Writer, value: float) -> None:
    """Append a floating-point number. The caller has reserved 8 bytes."""
    if cython.compiled:
        number = value
        bits = 0
        memcpy(cython.address(bits), cython.address(number), 8)
        _put(w, bits, 8)
    else:
        _put_bytes(w, pack(">d", value), 8)


def _put_uvarint(w: Writer, value: int) -> None:
    if value > _MASK32:
        raise EncodeError(f"{value} is not an unsigned 32-bit number")
    _reserve(w, 5)
    while value > 127:
        w.data[w.size] = value & 127 | 128
        w.size += 1
        value >>= 7
    w.data[w.size] = value
    w.size += 1


def _put_length(w: Writer, length: int, narrow: bool) -> None:
    """Append a length or count; -1 is null."""
    if w.flexible:
        _put_uvarint(w, length + 1)
    elif length > 0x7FFFFFFF:
        raise OverflowError(f"{length} is too long")
    else:
        _reserve(w, 4)
        _put(w, length, 2 if narrow else 4)


def _take(w: Writer) -> bytes:
    """The bytes written so far; the memory is empty afterwards."""
    if cython.compiled:
        taken = PyBytes_FromStringAndSize(cython.cast(cython.p_char, w.data), w.size)
    else:
        taken = bytes(w.data[: w.size])
    w.size = 0
    return taken


def _write_fixed(w: Writer, field: Field, value: Any) -> None:
    """A value of fixed size."""
    _reserve(w, 16)
    if field.kind == BOOL:
        _put(w, 1 if value else 0, 1)
    elif field.kind == UUID:
        if not isinstance(value, bytes) or len(value) != 16:
            raise TypeError(f"{value!r} is not an id of 16 bytes")
        _put_bytes(w, value, 16)
    elif field.kind == FLOAT64:
        _put_double(w, value)
    else:
        # A conversion to an integer in C would truncate other numbers.
        number = value if isinstance(value, int) else index_of(value)
        if number < field.least or number > field.greatest:
            raise OverflowError(f"{number} does not fit {8 * field.width} bits")
        _put(w, number, field.width)


def _write_sized(w: Writer, field: Field, value: Any, nullable: bool) -> None:
    """A string, bytes or records."""
    if value is None:
        if not nullable:
            raise TypeError(f"{field.name} is None")
        _put_length(w, -1, field.kind == STR)
    elif field.kind == STR:
        _write_string(w, field, value)
    else:
        _write_bytes(w, field, value)


def _write_string(w: Writer, field: Field, value: Any) -> None:
    if type(value) is str:
        text = value
        encoded = text.encode()
    else:
        encoded = value.encode()
    size = len(encoded)
    if size > _MAX_STRING:
        raise EncodeError(f"A string of {size} bytes is too long")
    _put_length(w, size, True)
    _reserve(w, size)
    if type(encoded) is bytes:
        _put_bytes(w, encoded, size)
    else:
        _put_buffer(w, field, encoded, size)


def _write_bytes(w: Writer, field: Field, value: Any) -> None:
    """Bytes or records. Long records are not copied."""
    size = len(value)
    _put_length(w, size, False)
    if field.kind == RECORDS and not w.tagged_depth and size + w.flexible > _COPY_BELOW:
        w.parts.append(_take(w))
        w.parts.append(value)
    else:
        _reserve(w, size)
        if type(value) is bytes:
            _put_bytes(w, value, size)
        else:
            _put_buffer(w, field, value, size)


def _write_encoded(w: Writer, value: bytes) -> None:
    """Elements of an array that were encoded before. Long ones are not copied."""
    size = len(value)
    if size > _COPY_BELOW and not w.tagged_depth:
        w.parts.append(_take(w))
        w.parts.append(value)
    else:
        _reserve(w, size)
        _put_bytes(w, value, size)


def _write_array(w: Writer, field: Field, value: Any) -> None:
    if value is None:
        if not field.nullable:
            raise TypeError(f"{field.name} is None")
        _put_length(w, -1, False)
    else:
        _put_length(w, len(value), False)
        _write_items(w, field, value)


def _write_items(w: Writer, field: Field, items: Any) -> None:
    """The elements of an array. An element that is bytes was encoded before."""
    if field.kind == STRUCT:
        for item in items:
            if type(item) is bytes:
                _write_encoded(w, item)
            else:
                _write_struct(w, field.shape, item)
    elif field.width:
        for item in items:
            _write_fixed(w, field, item)
    else:
        for item in items:
            _write_sized(w, field, item, False)


def _write_field(w: Writer, field: Field, value: Any, null: int) -> None:
    """A field of any kind. `null` is the byte of a struct that is null."""
    if field.is_list:
        _write_array(w, field, value)
    elif field.kind == STRUCT:
        if field.nullable:
            _reserve(w, 1)
            _put(w, null if value is None else 1, 1)
        if value is not None or not field.nullable:
            _write_struct(w, field.shape, value)
    elif field.width:
        _write_fixed(w, field, value)
    else:
        _write_sized(w, field, value, field.nullable)


def _write_struct(w: Writer, shape: Shape, source: Any) -> None:
    for index in range(shape.count):
        field = shape.fields[index]
        if field.exists and field.tag < 0:
            _write_field(w, field, _get(shape, source, field), _NULL)
    if w.flexible:
        _write_tags(w, shape, source)


def _write_tags(w: Writer, shape: Shape, source: Any) -> None:
    """The tagged fields that differ from their defaults, each after its size."""
    count = 0
    for field in shape.tagged:
        count += _differs(field, _get(shape, source, field))
    _put_uvarint(w, count)
    if count:
        for field in shape.tagged:
            value = _get(shape, source, field)
            if _differs(field, value):
                _write_tagged(w, field, value)


def _write_tagged(w: Writer, field: Field, value: Any) -> None:
    _put_uvarint(w, field.tag)
    start = w.size
    w.tagged_depth += 1
    _write_field(w, field, value, _NULL_IN_TAG)
    w.tagged_depth -= 1
    size = w.size - start
    # The size is known only now. It is appended, and then moved before the field.
    _put_uvarint(w, size)
    _rotate(w, start, size)


def _rotate(w: Writer, start: int, size: int) -> None:
    """Move the bytes after `start + size`, at most five, to `start`."""
    count = w.size - start - size
    if cython.compiled:
        few = 0
        memcpy(cython.address(few), w.data + start + size, count)
        memmove(w.data + start + count, w.data + start, size)
        memcpy(w.data + start, cython.address(few), count)
    else:
        moved = w.data[start + size : w.size] + w.data[start : start + size]
        w.data[start : w.size] = moved


def _differs(field: Field, value: Any) -> bool:
    """Whether the value of a field is not its default."""
    if field.default_is == CONSTANT:
        return value is not field.default and (field.default is None or value != field.default)
    if field.default_is == NEW_LIST:
        return bool(value != [])
    if value is None:
        return True
    shape = field.shape
    for index in range(shape.count):
        part = shape.fields[index]
        if _differs(part, _get(shape, value, part)):
            return True
    return False


def _part_of(shape: Shape, cls: type[DeclaredStruct]) -> Shape | None:
    """The shape of a struct within a message's; None if the message does not contain it."""
    if shape.cls is cls:
        return shape
    for field in shape.fields:
        if field.kind == STRUCT:
            found = _part_of(field.shape, cls)
            if found is not None:
                return found
    return None


class Encoder:
    """Encodes one message in one version, or one of its structs (`part`)."""

    shape: Shape
    flexible: bool
    title: str
    # The bytes of a response's frame before the message: size, correlation id and, if flexible, no tagged fields.
    head_size: int

    def __init__(self, cls: type[DeclaredMessage], version: int, part: type[DeclaredStruct] | None = None) -> None:
        shape = _part_of(shape_of(cls, version), part or cls)
        if shape is None:
            raise TypeError(f"{cls.__name__} does not contain {part}")
        self.shape = shape
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.title = f"{cls.__name__} version {version}"
        self.head_size = 9 if has_tagged_head(cls, version) else 8

    def encode(self, message: Any, parts: list[Any]) -> None:
        """Append the message's bytes to `parts`, long records uncopied. Raises EncodeError."""
        w = self._writer(parts)
        self._write(w, message)

    def encode_frame(self, message: Any, correlation_id: int) -> list[Any]:
        """A whole frame of a response, as buffers to write one after the other. Raises EncodeError."""
        parts: list[Any] = []
        w = self._writer(parts)
        w.size = self.head_size
        self._write(w, message)
        size = -4
        for part in parts:
            size += len(part)
        if size > 0x7FFFFFFF:
            raise EncodeError(f"A frame of {size} bytes is too long")
        if cython.compiled:
            # Nothing else refers to the first part, so its head is written in place.
            head = cython.cast(Memory, PyBytes_AS_STRING(parts[0]))
        else:
            head = bytearray(self.head_size)
        _put_number(head, 0, size, 4)
        _put_number(head, 4, correlation_id, 4)
        if cython.compiled:
            if self.head_size > 8:
                head[8] = 0
        else:
            parts[0] = bytes(head) + parts[0][self.head_size :]
        return parts

    def _writer(self, parts: list[Any]) -> Writer:
        w = Writer.__new__(Writer)
        w.flexible = self.flexible
        w.parts = parts
        w.capacity = _FIRST_CAPACITY
        if cython.compiled:
            w.data = cython.cast(Memory, PyMem_Malloc(w.capacity))
            if w.data == cython.NULL:
                raise MemoryError
        else:
            w.data = bytearray(w.capacity)
            w.size = 0
            w.tagged_depth = 0
        return w

    def _write(self, w: Writer, message: Any) -> None:
        try:
            _write_struct(w, self.shape, message)
        except (AttributeError, TypeError, OverflowError, UnicodeEncodeError, struct_error) as error:
            raise EncodeError(f"{self.title}: {error}") from error
        w.parts.append(_take(w))
