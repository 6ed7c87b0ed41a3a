# mypy: ignore-errors
# ruff: noqa: F821
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encoders in C, for Cython's pure-Python mode: what `encoder` writes as Python source, done by walking a `Shape`.

Every function holds the GIL. A message that a version cannot carry raises EncodeError, whatever it holds.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cython.cimports.cpython.number import PyNumber_Index
from cython.cimports.cpython.object import PyObject
from cython.cimports.libc.stdint import int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from cython.cimports.libc.string import memcpy, memmove
from cython.cimports.ottla.protocol._shapes import (
    _BOOL,
    _CONSTANT,
    _FLOAT64,
    _INT8,
    _INT16,
    _INT32,
    _INT64,
    _NEW_LIST,
    _RECORDS,
    _STR,
    _STRUCT,
    _UINT16,
    _UUID,
    Field,
    Shape,
    shape_of,
)

from ottla.protocol.message import has_tagged_head
from ottla.protocol.wire import COPY_BELOW, MAX_STRING, EncodeError

_MAX_STRING = cython.declare(cython.Py_ssize_t, MAX_STRING)
_COPY_BELOW = cython.declare(cython.Py_ssize_t, COPY_BELOW)

_NULL = cython.declare(cython.int, 0xFF)
_NULL_IN_TAG = cython.declare(cython.int, 0)

_SlotPointer = cython.typedef(cython.pointer(cython.pointer(PyObject)))


@cython.final
@cython.cclass
class Writer:
    """Bytes that grow. `whole` is above 0 inside a tagged field, whose size stands before it: all is copied there."""

    def __dealloc__(self):
        PyMem_Free(self.data)


@cython.cfunc
@cython.inline
def _get(shape: Shape, source: object, field: Field) -> object:
    if type(source) is not shape.cls:
        return getattr(source, field.name)
    place: cython.pointer(PyObject) = cython.cast(
        _SlotPointer, cython.cast(cython.p_char, cython.cast(cython.pointer(PyObject), source)) + field.slot
    )[0]
    if place == cython.NULL:
        raise AttributeError(field.name)
    return cython.cast(object, place)


@cython.cfunc
@cython.exceptval(-1)
def _grow(w: Writer, more: cython.Py_ssize_t) -> cython.int:
    room: cython.Py_ssize_t = 2 * w.room + more
    data: cython.p_void = PyMem_Realloc(w.data, room)
    if data == cython.NULL:
        raise MemoryError
    w.data = cython.cast(cython.pointer(uint8_t), data)
    w.room = room
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _reserve(w: Writer, more: cython.Py_ssize_t) -> cython.int:
    if w.room - w.size < more:
        return _grow(w, more)
    return 0


@cython.cfunc
@cython.inline
def _put_number(place: cython.pointer(uint8_t), value: uint64_t, width: cython.int) -> cython.void:
    """The low bytes of a number, the highest first."""
    shift: cython.int = 8 * width
    while shift:
        shift -= 8
        place[0] = cython.cast(uint8_t, value >> shift & 0xFF)
        place += 1


@cython.cfunc
@cython.inline
def _put(w: Writer, value: uint64_t, width: cython.int) -> cython.void:
    """The same at the end of what is written; there is room."""
    _put_number(w.data + w.size, value, width)
    w.size += width


@cython.cfunc
@cython.exceptval(-1)
def _put_uvarint(w: Writer, value: uint64_t) -> cython.int:
    if value > 0xFFFFFFFF:
        raise EncodeError(f"{value} is no unsigned 32-bit number")
    _reserve(w, 5)
    while value > 127:
        w.data[w.size] = cython.cast(uint8_t, value & 127 | 128)
        w.size += 1
        value >>= 7
    w.data[w.size] = cython.cast(uint8_t, value)
    w.size += 1
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _put_length(w: Writer, length: cython.Py_ssize_t, narrow: cython.bint) -> cython.int:
    """A length or count; -1 is null."""
    if w.flexible:
        return _put_uvarint(w, cython.cast(uint64_t, length + 1))
    if length > 0x7FFFFFFF:
        raise OverflowError(f"{length} is too long")
    _reserve(w, 4)
    _put(w, cython.cast(uint64_t, length), 2 if narrow else 4)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_fixed(w: Writer, kind: cython.int, value: object) -> cython.int:
    number: int64_t
    real: cython.double
    bits: uint64_t = 0
    _reserve(w, 16)
    if kind == _BOOL:
        _put(w, 1 if value else 0, 1)
        return 0
    if kind == _UUID:
        if not isinstance(value, bytes) or len(value) != 16:
            raise TypeError(f"{value!r} is no id of 16 bytes")
        memcpy(w.data + w.size, PyBytes_AS_STRING(value), 16)
        w.size += 16
        return 0
    if kind == _FLOAT64:
        real = value
        memcpy(cython.address(bits), cython.address(real), 8)
        _put(w, bits, 8)
        return 0
    if not isinstance(value, int):
        value = PyNumber_Index(value)  # what is no whole number is not cut to one
    number = value
    width: cython.int
    fits: cython.bint
    if kind == _INT32:
        fits, width = number == cython.cast(int32_t, number), 4
    elif kind == _INT64:
        fits, width = True, 8
    elif kind == _INT16:
        fits, width = number == cython.cast(int16_t, number), 2
    elif kind == _INT8:
        fits, width = number == cython.cast(int8_t, number), 1
    elif kind == _UINT16:
        fits, width = 0 <= number <= 0xFFFF, 2
    else:
        fits, width = 0 <= number <= 0xFFFFFFFF, 4
    if not fits:
        raise OverflowError(f"{number} does not fit {8 * width} bits")
    _put(w, cython.cast(uint64_t, number), width)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_sized(w: Writer, field: Field, value: object, nullable: cython.bint) -> cython.int:
    """A string, bytes or records."""
    view: Py_buffer
    size: cython.Py_ssize_t
    if value is None:
        if not nullable:
            raise TypeError(f"{field.name} is None")
        return _put_length(w, -1, field.kind == _STR)
    if field.kind == _STR:
        value = cython.cast(str, value).encode() if type(value) is str else value.encode()
        if len(value) > _MAX_STRING:
            raise EncodeError(f"A string of {len(value)} bytes is too long")
    size = len(value)
    _put_length(w, size, field.kind == _STR)
    if field.kind == _RECORDS and not w.whole and size + w.flexible > _COPY_BELOW:
        w.parts.append(PyBytes_FromStringAndSize(cython.cast(cython.p_char, w.data), w.size))
        w.parts.append(value)
        w.size = 0
        return 0
    _reserve(w, size)
    if PyBytes_CheckExact(value):
        memcpy(w.data + w.size, PyBytes_AS_STRING(value), size)
    else:
        PyObject_GetBuffer(value, cython.address(view), PyBUF_SIMPLE)
        if view.len != size:
            PyBuffer_Release(cython.address(view))
            raise TypeError(f"{field.name} does not hold bytes")
        memcpy(w.data + w.size, view.buf, size)
        PyBuffer_Release(cython.address(view))
    w.size += size
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_encoded(w: Writer, value: bytes) -> cython.int:
    """Elements of an array that were encoded before. Long ones are not copied."""
    size: cython.Py_ssize_t = len(value)
    if size > _COPY_BELOW and not w.whole:
        w.parts.append(PyBytes_FromStringAndSize(cython.cast(cython.p_char, w.data), w.size))
        w.parts.append(value)
        w.size = 0
        return 0
    _reserve(w, size)
    memcpy(w.data + w.size, PyBytes_AS_STRING(value), size)
    w.size += size
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_array(w: Writer, field: Field, value: object) -> cython.int:
    item: object
    if value is None:
        if not field.nullable:
            raise TypeError(f"{field.name} is None")
        return _put_length(w, -1, False)
    _put_length(w, len(value), False)
    if field.kind == _STRUCT:
        for item in value:
            if PyBytes_CheckExact(item):
                _write_encoded(w, item)
            else:
                _write_struct(w, field.shape, item)
    elif field.width:
        for item in value:
            _write_fixed(w, field.kind, item)
    else:
        for item in value:
            _write_sized(w, field, item, False)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_field(w: Writer, field: Field, value: object, null: cython.int) -> cython.int:
    if field.is_list:
        return _write_array(w, field, value)
    if field.kind == _STRUCT:
        if field.nullable:
            _reserve(w, 1)
            _put(w, null if value is None else 1, 1)
            if value is None:
                return 0
        return _write_struct(w, field.shape, value)
    if field.width:
        return _write_fixed(w, field.kind, value)
    return _write_sized(w, field, value, field.nullable)


@cython.cfunc
@cython.exceptval(-1)
def _write_struct(w: Writer, shape: Shape, source: object) -> cython.int:
    index: cython.Py_ssize_t
    for index in range(shape.count):
        field: Field = cython.cast(Field, shape.fields[index])
        if field.exists and field.tag < 0:
            _write_field(w, field, _get(shape, source, field), _NULL)
    if w.flexible:
        _write_tags(w, shape, source)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_tags(w: Writer, shape: Shape, source: object) -> cython.int:
    """Only those that differ from their defaults; each has its size before it."""
    field: Field
    count: cython.Py_ssize_t = 0
    for field in shape.tagged:
        count += _differs(field, _get(shape, source, field))
    _put_uvarint(w, count)
    if not count:
        return 0
    for field in shape.tagged:
        value: object = _get(shape, source, field)
        if _differs(field, value):
            _put_uvarint(w, field.tag)
            start: cython.Py_ssize_t = w.size
            w.whole += 1
            _write_field(w, field, value, _NULL_IN_TAG)
            w.whole -= 1
            size: cython.Py_ssize_t = w.size - start
            _put_uvarint(w, size)  # behind what it belongs before
            _turn(w, start, size)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _turn(w: Writer, start: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Put the few bytes that follow `size` bytes from `start` on before them."""
    few: uint8_t[8]
    count: cython.Py_ssize_t = w.size - start - size
    memcpy(few, w.data + start + size, count)
    memmove(w.data + start + count, w.data + start, size)
    memcpy(w.data + start, few, count)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _differs(field: Field, value: object) -> cython.int:
    """Whether the value of a field is not its default."""
    index: cython.Py_ssize_t
    if field.default_is == _CONSTANT:
        return value is not field.default and (field.default is None or value != field.default)
    if field.default_is == _NEW_LIST:
        return value != []
    shape: Shape = field.shape
    if value is None:
        return 1
    for index in range(shape.count):
        part: Field = cython.cast(Field, shape.fields[index])
        if _differs(part, _get(shape, value, part)):
            return 1
    return 0


@cython.cfunc
def _part_of(shape: Shape, cls: object) -> object:
    """The shape of a struct somewhere in a message's; None if it is not there."""
    field: Field
    if shape.cls is cls:
        return shape
    for field in shape.fields:
        if field.shape is not None:
            found: object = _part_of(field.shape, cls)
            if found is not None:
                return found
    return None


@cython.final
@cython.cclass
class Encoder:
    """`encode(message, parts)` of one message in one version, or of one of its structs (`part`)."""

    def __init__(self, cls: object, version: object, part: object = None) -> None:
        self.shape = _part_of(shape_of(cls, version), part or cls)
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.title = f"{cls.__name__} version {version}"
        # Of a response's frame: size, correlation id, and no tagged fields.
        self.head = 9 if has_tagged_head(cls, version) else 8

    def encode(self, message: object, parts: list) -> None:
        """Append the message's bytes to `parts`, long records as they are. Raises EncodeError."""
        w: Writer = self._writer(parts)
        self._write(w, message)

    def encode_frame(self, message: object, correlation_id: int32_t) -> list:
        """A whole frame, the message being a response, as buffers to write one after the other. Raises EncodeError."""
        parts: list = []
        w: Writer = self._writer(parts)
        w.size = self.head
        self._write(w, message)
        size: int64_t = -4
        part: object
        for part in parts:
            size += len(part)
        if size > 0x7FFFFFFF:
            raise EncodeError(f"A frame of {size} bytes is too long")
        # Into the first of the parts, which nobody else has seen.
        first: object = parts[0]
        place: cython.pointer(uint8_t) = cython.cast(cython.pointer(uint8_t), PyBytes_AS_STRING(first))
        _put_number(place, cython.cast(uint64_t, size), 4)
        _put_number(place + 4, cython.cast(uint64_t, correlation_id), 4)
        if self.head > 8:
            place[8] = 0
        return parts

    @cython.cfunc
    def _writer(self, parts: list) -> Writer:
        w: Writer = Writer.__new__(Writer)
        w.flexible = self.flexible
        w.parts = parts
        w.room = 256
        w.data = cython.cast(cython.pointer(uint8_t), PyMem_Malloc(w.room))
        if w.data == cython.NULL:
            raise MemoryError
        return w

    @cython.cfunc
    @cython.exceptval(-1)
    def _write(self, w: Writer, message: object) -> cython.int:
        try:
            _write_struct(w, self.shape, message)
        except (AttributeError, TypeError, OverflowError, UnicodeEncodeError) as error:
            raise EncodeError(f"{self.title}: {error}") from error
        w.parts.append(PyBytes_FromStringAndSize(cython.cast(cython.p_char, w.data), w.size))
        return 0
