# mypy: ignore-errors
# ruff: noqa: F821, PERF401
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decoders in C, for Cython's pure-Python mode: what `decoder` writes as Python source, done by walking a `Shape`.

Every function holds the GIL and is bounded by its input: lengths and counts are checked against what is left before
anything is allocated for them.

The garbage collector does not look at what is decoded: messages are trees, which reference counts free, and a look at
a large one takes longer than decoding it.
"""

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.object import PyObject, PyTypeObject
from cython.cimports.cpython.ref import Py_INCREF, Py_XDECREF
from cython.cimports.cpython.tuple import PyTuple_SET_ITEM
from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
from cython.cimports.libc.stdint import int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cython.cimports.libc.string import memcpy
from cython.cimports.ottla.protocol._decoding import PyObject_GC_UnTrack, PyType_GenericAlloc
from cython.cimports.ottla.protocol._shapes import (
    _BOOL,
    _BYTES,
    _CONSTANT,
    _INT8,
    _INT16,
    _INT32,
    _INT64,
    _NEW_LIST,
    _STR,
    _STRUCT,
    _UINT16,
    _UINT32,
    _UUID,
    Field,
    Shape,
    shape_of,
)

from ottla.protocol.wire import MAX_ARRAY, MAX_STRING, MAX_TAGS, DecodeError, bad_length, too_many_elements

_MAX_ARRAY = cython.declare(cython.Py_ssize_t, MAX_ARRAY)
_MAX_STRING = cython.declare(cython.Py_ssize_t, MAX_STRING)
_MAX_TAGS = cython.declare(cython.Py_ssize_t, MAX_TAGS)


_SlotPointer = cython.typedef(cython.pointer(cython.pointer(PyObject)))
_ClassPointer = cython.typedef(cython.pointer(PyTypeObject))
_BytesPointer = cython.typedef(cython.pointer(cython.const[uint8_t]))


@cython.final
@cython.cclass
class Reader:
    """What is left of a buffer. It is given back by whoever took it."""


@cython.cfunc
@cython.inline
def _set(target: object, field: Field, value: object) -> cython.void:
    """Set the field of a struct of the field's own class."""
    place: _SlotPointer = cython.cast(
        _SlotPointer, cython.cast(cython.p_char, cython.cast(cython.pointer(PyObject), target)) + field.slot
    )
    old: cython.pointer(PyObject) = place[0]
    Py_INCREF(value)
    place[0] = cython.cast(cython.pointer(PyObject), value)
    Py_XDECREF(old)


@cython.cfunc
@cython.inline
def _new(shape: Shape) -> object:
    made: object = PyType_GenericAlloc(cython.cast(_ClassPointer, shape.cls), 0)
    PyObject_GC_UnTrack(made)
    return made


@cython.cfunc
@cython.inline
def _new_list() -> list:
    made: list = []
    PyObject_GC_UnTrack(made)
    return made


@cython.cfunc
def _new_default(shape: Shape) -> object:
    made: object = _new(shape)
    index: cython.Py_ssize_t
    for index in range(shape.count):
        field: Field = cython.cast(Field, shape.fields[index])
        _set(made, field, _default(field))
    return made


@cython.cfunc
@cython.inline
def _default(field: Field) -> object:
    if field.default_is == _CONSTANT:
        return field.default
    if field.default_is == _NEW_LIST:
        return _new_list()
    return _new_default(field.shape)


@cython.cfunc
@cython.exceptval(-1)
def _short(r: Reader, size: cython.Py_ssize_t) -> cython.int:
    raise DecodeError(f"{size} bytes are expected, {r.end - r.at} remain")


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _need(r: Reader, size: cython.Py_ssize_t) -> cython.int:
    if r.end - r.at < size:
        return _short(r, size)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _count(r: Reader, elements: int64_t) -> cython.int:
    """Take elements from what the caller allows; below zero there is no limit."""
    if r.most >= 0:
        r.left -= elements
        if r.left < 0:
            raise too_many_elements(r.most)
    return 0


@cython.cfunc
@cython.inline
def _get16(p: cython.pointer(cython.const[uint8_t])) -> uint16_t:
    return cython.cast(uint16_t, cython.cast(uint16_t, p[0]) << 8 | p[1])


@cython.cfunc
@cython.inline
def _get32(p: cython.pointer(cython.const[uint8_t])) -> uint32_t:
    return (
        cython.cast(uint32_t, p[0]) << 24
        | cython.cast(uint32_t, p[1]) << 16
        | cython.cast(uint32_t, p[2]) << 8
        | cython.cast(uint32_t, p[3])
    )


@cython.cfunc
@cython.inline
def _get64(p: cython.pointer(cython.const[uint8_t])) -> uint64_t:
    return cython.cast(uint64_t, _get32(p)) << 32 | _get32(p + 4)


@cython.cfunc
@cython.exceptval(-1)
def _uvarint(r: Reader) -> int64_t:
    value: uint64_t = 0
    shift: cython.int = 0
    byte: uint8_t
    while shift < 35:
        if r.at >= r.end:
            raise DecodeError("The buffer ends before a varint" if not shift else "The buffer ends inside a varint")
        byte = r.data[r.at]
        r.at += 1
        value |= cython.cast(uint64_t, byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return cython.cast(int64_t, value)
        shift += 7
    raise DecodeError("A varint is longer than 32 bits")


@cython.cfunc
@cython.exceptval(-2)
def _length(r: Reader, narrow: cython.bint) -> int64_t:
    """A length or count: -1 is null; what is below that, somebody's mistake."""
    length: int64_t
    if r.flexible:
        return _uvarint(r) - 1
    if narrow:
        _need(r, 2)
        length = cython.cast(int16_t, _get16(r.data + r.at))
        r.at += 2
    else:
        _need(r, 4)
        length = cython.cast(int32_t, _get32(r.data + r.at))
        r.at += 4
    return length if length >= -1 else -3


@cython.cfunc
def _read_fixed(r: Reader, kind: cython.int) -> object:
    """A value of fixed size, of which the caller knows that it is there."""
    p: cython.pointer(cython.const[uint8_t]) = r.data + r.at
    bits: uint64_t
    number: cython.double = 0
    if kind == _INT32:
        r.at += 4
        return cython.cast(int32_t, _get32(p))
    if kind == _INT64:
        r.at += 8
        return cython.cast(int64_t, _get64(p))
    if kind == _INT16:
        r.at += 2
        return cython.cast(int16_t, _get16(p))
    if kind == _BOOL:
        r.at += 1
        return p[0] != 0
    if kind == _INT8:
        r.at += 1
        return cython.cast(int8_t, p[0])
    if kind == _UINT16:
        r.at += 2
        return _get16(p)
    if kind == _UINT32:
        r.at += 4
        return _get32(p)
    if kind == _UUID:
        r.at += 16
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, p), 16)
    bits = _get64(p)
    memcpy(cython.address(number), cython.address(bits), 8)
    r.at += 8
    return number


@cython.cfunc
def _read_sized(r: Reader, field: Field, nullable: cython.bint) -> object:
    """A string, bytes or records."""
    kind: cython.int = field.kind
    length: int64_t = _length(r, kind == _STR)
    if length == -1 and nullable:
        return None
    if length < 0 or length > r.end - r.at or (kind == _STR and length > _MAX_STRING):
        raise bad_length(field.name, -1 if length < 0 else length, r.end - r.at)
    start: cython.Py_ssize_t = r.at
    r.at = start + length
    if kind == _STR:
        return PyUnicode_DecodeUTF8(cython.cast(cython.p_char, r.data + start), length, cython.NULL)
    if kind == _BYTES:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, r.data + start), length)
    if type(r.buffer) is not memoryview:
        r.buffer = memoryview(r.buffer)
    return r.buffer[start : r.at]


@cython.cfunc
def _read_array(r: Reader, field: Field) -> object:
    count: int64_t = _length(r, False)
    if count == -1 and field.nullable:
        return None
    smallest: cython.Py_ssize_t = field.smallest or 1
    if count < 0 or count > _MAX_ARRAY or count * smallest > r.end - r.at:
        raise bad_length(field.name, -1 if count < 0 else count, r.end - r.at)
    _count(r, count)
    items: list = _new_list()
    _: int64_t
    if field.kind == _STRUCT:
        for _ in range(count):
            items.append(_read_struct(r, field.shape))
    elif field.width:
        for _ in range(count):
            items.append(_read_fixed(r, field.kind))
    else:
        for _ in range(count):
            items.append(_read_sized(r, field, False))
    return items


@cython.cfunc
def _read_field(r: Reader, field: Field, null: cython.int) -> object:
    if field.is_list:
        return _read_array(r, field)
    if field.kind == _STRUCT:
        if field.nullable:
            _need(r, 1)
            r.at += 1
            if cython.cast(int8_t, r.data[r.at - 1]) <= null:
                return None
        return _read_struct(r, field.shape)
    if field.width:
        _need(r, field.width)
        return _read_fixed(r, field.kind)
    return _read_sized(r, field, field.nullable)


@cython.cfunc
def _read_struct(r: Reader, shape: Shape) -> object:
    made: object = _new(shape)
    index: cython.Py_ssize_t
    for index in range(shape.count):
        field: Field = cython.cast(Field, shape.fields[index])
        _set(made, field, _read_field(r, field, -1) if field.exists and field.tag < 0 else _default(field))
    if r.flexible:
        if r.at < r.end and r.data[r.at] == 0:
            r.at += 1
        else:
            _read_tags(r, shape, made)
    return made


@cython.cfunc
def _read_tags(r: Reader, shape: Shape, made: object) -> object:
    count: int64_t = _uvarint(r)
    if count > _MAX_TAGS:
        raise bad_length("Tagged section", count, r.end - r.at)
    _count(r, count)
    _: int64_t
    for _ in range(count):
        tag: int64_t = _uvarint(r)
        size: int64_t = _uvarint(r)
        if size > r.end - r.at:
            raise bad_length("Tagged field", size, r.end - r.at)
        stop: cython.Py_ssize_t = r.at + size
        field: Field
        for field in shape.tagged:
            if field.tag == tag:
                _set(made, field, _read_field(r, field, 0))
                if r.at != stop:
                    raise bad_length(f"Tagged field {field.name}", stop - r.at, r.end - r.at)
                break
        r.at = stop
    return None


@cython.final
@cython.cclass
class Decoder:
    """`decode(buffer, position, most=-1) -> (message, position)` of one message in one version."""

    def __init__(self, cls: object, version: object) -> None:
        self.shape = shape_of(cls, version)
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.title = f"{cls.__name__} version {version}"

    def decode(self, buffer: object, position: cython.Py_ssize_t, most: cython.Py_ssize_t = -1) -> object:
        """The message at `position`, and the position after it. Raises DecodeError.

        `most` limits the array elements; below zero there is no limit.
        """
        view: Py_buffer
        r: Reader = Reader.__new__(Reader)
        r.buffer = buffer
        r.flexible = self.flexible
        r.left = r.most = most
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            r.data = cython.cast(cython.pointer(cython.const[uint8_t]), view.buf)
            r.end = view.len
            r.at = position if 0 <= position <= view.len else view.len
            message: object = _read_struct(r, self.shape)
        except (DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"{self.title}: {error}") from error
        finally:
            PyBuffer_Release(cython.address(view))
        return message, r.at


def read_request_header(buffer: object, flexible_from: dict, make: type) -> object:
    """(key, version, correlation id, client id) as `make`, and the body's position, if nothing is wrong; else None.

    `flexible_from` has the first flexible version of each API. Who gets None reads again, to say what is wrong.
    """
    view: Py_buffer
    found: object = None
    PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
    if view.len >= 10:
        found = _request_header(cython.cast(_BytesPointer, view.buf), view.len, flexible_from, make)
    PyBuffer_Release(cython.address(view))
    return found


@cython.cfunc
def _request_header(data: _BytesPointer, end: cython.Py_ssize_t, flexible_from: dict, make: type) -> object:
    key: object = cython.cast(int16_t, _get16(data))
    version: cython.int = cython.cast(int16_t, _get16(data + 2))
    length: cython.int = cython.cast(int16_t, _get16(data + 8))
    position: cython.Py_ssize_t = 10
    client_id: object = None
    index: cython.Py_ssize_t
    first: object = flexible_from.get(key)
    if length < -1 or first is None or length > end - position:
        return None
    if length >= 0:
        for index in range(position, position + length):
            if data[index] > 127:
                return None
        client_id = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, data + position), length, cython.NULL)
        position += length
    if version >= first:
        if position >= end or data[position] != 0:
            return None
        position += 1
    header: object = PyType_GenericAlloc(cython.cast(_ClassPointer, make), 4)
    correlation_id: object = cython.cast(int32_t, _get32(data + 4))
    number: object = version
    Py_INCREF(key)
    PyTuple_SET_ITEM(header, 0, key)
    Py_INCREF(number)
    PyTuple_SET_ITEM(header, 1, number)
    Py_INCREF(correlation_id)
    PyTuple_SET_ITEM(header, 2, correlation_id)
    Py_INCREF(client_id)
    PyTuple_SET_ITEM(header, 3, client_id)
    return header, position
