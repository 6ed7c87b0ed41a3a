# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Decodes messages by walking their `Shape`, and the headers of requests.

One source for C and Python: Cython compiles this file with the types of `_decoding.pxd`. `Bytes` is a pointer there and
a memoryview here; both are indexed alike.

Every function holds the GIL and is bounded by its input: lengths and counts are compared with the remaining bytes
before anything is allocated for them.

Compiled, decoded objects are hidden from the garbage collector. Messages are trees, which reference counts free, and a
collection takes longer than decoding a large message.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any, TypeAlias, TypeVar

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.protocol.declaration import DeclaredMessage
from ottla.protocol.wire import (
    MAX_ARRAY,
    MAX_STRING,
    MAX_TAGS,
    Buffer,
    DecodeError,
    bad_length,
    too_many_elements,
)

if not cython.compiled:
    from ottla.protocol._shapes import (
        BOOL,
        BYTES,
        CONSTANT,
        INT8,
        INT16,
        INT32,
        INT64,
        NEW_LIST,
        STR,
        STRUCT,
        UINT16,
        UINT32,
        UUID,
        Field,
        Shape,
        shape_of,
    )

    Bytes: TypeAlias = memoryview

Header = TypeVar("Header", bound=tuple[Any, ...])

_MAX_ARRAY = MAX_ARRAY
_MAX_STRING = MAX_STRING
_MAX_TAGS = MAX_TAGS
_MASK32 = 0xFFFFFFFF


class Reader:
    """A buffer and the position in it.

    `left` is how many more array elements may be decoded, of `most` in all; a negative `most` means no limit.
    """

    data: Bytes
    at: int
    end: int
    left: int
    most: int
    flexible: bool
    buffer: Buffer


def _set(target: Any, field: Field, value: Any) -> None:
    """Set a field of a struct, which must be of the class that declares the field."""
    if cython.compiled:
        place = cython.cast(SlotPointer, cython.cast(cython.p_char, cython.cast(ObjectPointer, target)) + field.slot)
        old = place[0]
        Py_INCREF(value)
        place[0] = cython.cast(ObjectPointer, value)
        Py_XDECREF(old)
    else:
        setattr(target, field.name, value)


def _new(shape: Shape) -> Any:
    """A struct without values in its fields."""
    if cython.compiled:
        made = PyType_GenericAlloc(cython.cast(ClassPointer, shape.cls), 0)
        PyObject_GC_UnTrack(made)
        return made
    return shape.cls.__new__(shape.cls)


def _new_list() -> list[Any]:
    made: list[Any] = []
    if cython.compiled:
        PyObject_GC_UnTrack(made)
    return made


def _new_default(shape: Shape) -> Any:
    made = _new(shape)
    for index in range(shape.count):
        field = shape.fields[index]
        _set(made, field, _default(field))
    return made


def _default(field: Field) -> Any:
    if field.default_is == CONSTANT:
        return field.default
    if field.default_is == NEW_LIST:
        return _new_list()
    return _new_default(field.shape)


def _raise_short(r: Reader, size: int) -> None:
    raise DecodeError(f"{size} bytes are expected, {r.end - r.at} remain")


def _need(r: Reader, size: int) -> None:
    if r.end - r.at < size:
        _raise_short(r, size)


def _count(r: Reader, elements: int) -> None:
    """Subtract elements from the number that may still be decoded."""
    if r.most >= 0:
        r.left -= elements
        if r.left < 0:
            raise too_many_elements(r.most)


def _int16(data: Bytes, at: int) -> int:
    return ((data[at] << 8 | data[at + 1]) ^ 0x8000) - 0x8000


def _uint32(data: Bytes, at: int) -> int:
    return (data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]) & _MASK32


def _int32(data: Bytes, at: int) -> int:
    if cython.compiled:
        return cython.cast(int32_t, _uint32(data, at))
    return (_uint32(data, at) ^ 0x80000000) - 0x80000000


def _int64(data: Bytes, at: int) -> int:
    if cython.compiled:
        return cython.cast(uint64_t, _uint32(data, at)) << 32 | _uint32(data, at + 4)
    return _int32(data, at) << 32 | _uint32(data, at + 4)


def _float64(data: Bytes, at: int) -> float:
    if cython.compiled:
        bits = cython.cast(uint64_t, _int64(data, at))
        number = 0.0
        memcpy(cython.address(number), cython.address(bits), 8)
        return number
    value: float = unpack_from(">d", data, at)[0]
    return value


def _bytes(data: Bytes, at: int, size: int) -> bytes:
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + at), size)
    return bytes(data[at : at + size])


def _text(data: Bytes, at: int, size: int) -> str:
    if cython.compiled:
        return PyUnicode_DecodeUTF8(cython.cast(cython.p_char, data + at), size, cython.NULL)
    return str(data[at : at + size], "utf-8")


def _uvarint(r: Reader) -> int:
    """An unsigned varint of at most 32 bits."""
    value = 0
    shift = 0
    while shift < 35:
        if r.at >= r.end:
            raise DecodeError("The buffer ends inside a varint" if shift else "The buffer ends before a varint")
        byte = r.data[r.at]
        r.at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > _MASK32:
                break
            return value
        shift += 7
    raise DecodeError("A varint is longer than 32 bits")


def _length(r: Reader, narrow: bool) -> int:
    """A length or count: -1 is null, and a lower number is invalid."""
    if r.flexible:
        return _uvarint(r) - 1
    if narrow:
        _need(r, 2)
        length = _int16(r.data, r.at)
        r.at += 2
    else:
        _need(r, 4)
        length = _int32(r.data, r.at)
        r.at += 4
    return length if length >= -1 else -3


def _read_fixed(r: Reader, kind: int) -> Any:
    """A value of fixed size. The caller has checked that its bytes remain."""
    data = r.data
    at = r.at
    if kind == INT32:
        r.at += 4
        return _int32(data, at)
    if kind == INT64:
        r.at += 8
        return _int64(data, at)
    if kind == INT16:
        r.at += 2
        return _int16(data, at)
    if kind == BOOL:
        r.at += 1
        return data[at] != 0
    if kind == INT8:
        r.at += 1
        return (data[at] ^ 0x80) - 0x80
    if kind == UINT16:
        r.at += 2
        return data[at] << 8 | data[at + 1]
    if kind == UINT32:
        r.at += 4
        return _uint32(data, at)
    if kind == UUID:
        r.at += 16
        return _bytes(data, at, 16)
    r.at += 8
    return _float64(data, at)


def _read_sized(r: Reader, field: Field, nullable: bool) -> Any:
    """A string, bytes or records."""
    kind = field.kind
    length = _length(r, kind == STR)
    if length == -1 and nullable:
        return None
    if length < 0 or length > r.end - r.at or (kind == STR and length > _MAX_STRING):
        raise bad_length(field.name, -1 if length < 0 else length, r.end - r.at)
    start = r.at
    r.at = start + length
    if kind == STR:
        return _text(r.data, start, length)
    if kind == BYTES:
        return _bytes(r.data, start, length)
    if type(r.buffer) is not memoryview:
        r.buffer = memoryview(r.buffer)
    return r.buffer[start : r.at]


def _read_array(r: Reader, field: Field) -> Any:
    count = _length(r, False)
    if count == -1 and field.nullable:
        return None
    smallest = field.smallest or 1
    if count < 0 or count > _MAX_ARRAY or count * smallest > r.end - r.at:
        raise bad_length(field.name, -1 if count < 0 else count, r.end - r.at)
    _count(r, count)
    items = _new_list()
    if field.kind == STRUCT:
        for _ in range(count):
            items.append(_read_struct(r, field.shape))
    elif field.width:
        for _ in range(count):
            items.append(_read_fixed(r, field.kind))
    else:
        for _ in range(count):
            items.append(_read_sized(r, field, False))
    return items


def _read_field(r: Reader, field: Field, null: int) -> Any:
    """The value of a field. A nullable struct is null if its first byte, as a signed number, is at most `null`."""
    if field.is_list:
        return _read_array(r, field)
    if field.kind == STRUCT:
        if field.nullable:
            _need(r, 1)
            r.at += 1
            if (r.data[r.at - 1] ^ 0x80) - 0x80 <= null:
                return None
        return _read_struct(r, field.shape)
    if field.width:
        _need(r, field.width)
        return _read_fixed(r, field.kind)
    return _read_sized(r, field, field.nullable)


def _read_struct(r: Reader, shape: Shape) -> Any:
    made = _new(shape)
    for index in range(shape.count):
        field = shape.fields[index]
        _set(made, field, _read_field(r, field, -1) if field.exists and field.tag < 0 else _default(field))
    if r.flexible:
        if r.at < r.end and r.data[r.at] == 0:
            r.at += 1
        else:
            _read_tags(r, shape, made)
    return made


def _read_tags(r: Reader, shape: Shape, made: Any) -> None:
    """Read the tagged fields of a struct, and skip unknown ones, which count as elements too."""
    count = _uvarint(r)
    if count > _MAX_TAGS:
        raise bad_length("Tagged section", count, r.end - r.at)
    _count(r, count)
    for _ in range(count):
        tag = _uvarint(r)
        size = _uvarint(r)
        if size > r.end - r.at:
            raise bad_length("Tagged field", size, r.end - r.at)
        stop = r.at + size
        for field in shape.tagged:
            if field.tag == tag:
                _set(made, field, _read_field(r, field, 0))
                if r.at != stop:
                    raise bad_length(f"Tagged field {field.name}", stop - r.at, r.end - r.at)
                break
        r.at = stop


class Decoder:
    """Decodes one message in one version."""

    shape: Shape
    flexible: bool
    title: str

    def __init__(self, cls: type[DeclaredMessage], version: int) -> None:
        self.shape = shape_of(cls, version)
        self.flexible = version >= cls.FLEXIBLE_FROM
        self.title = f"{cls.__name__} version {version}"

    def decode(self, buffer: Buffer, position: int, most: int = -1) -> tuple[Any, int]:
        """The message at `position`, and the position after it. Raises DecodeError.

        `most` limits the array elements; a negative number means no limit.
        """
        r = Reader.__new__(Reader)
        r.buffer = buffer
        r.flexible = self.flexible
        r.left = r.most = most
        if cython.compiled:
            PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
            r.data = cython.cast(Bytes, view.buf)
            r.end = view.len
        else:
            r.data = memoryview(buffer).cast("B")
            r.end = len(r.data)
        r.at = position if 0 <= position <= r.end else r.end
        try:
            message = _read_struct(r, self.shape)
        except (DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"{self.title}: {error}") from error
        finally:
            if cython.compiled:
                PyBuffer_Release(cython.address(view))
            else:
                # A traceback that refers to the reader must not lock the buffer.
                r.data.release()
        return message, r.at


def read_request_header(buffer: Buffer, flexible_from: dict[int, int], make: type[Header]) -> tuple[Header, int] | None:
    """A header of plain form: (key, version, correlation id, client id) as `make`, and the position of the body.

    `flexible_from` has the first flexible version of each API. Returns None for a header that is malformed, of an
    unknown API, with a client id that is not ASCII, or with tagged fields: the caller has to read it with more care.
    """
    found = None
    if cython.compiled:
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        if view.len >= 10:
            found = _request_header(cython.cast(Bytes, view.buf), view.len, flexible_from, make)
        PyBuffer_Release(cython.address(view))
    elif len(buffer) >= 10:
        found = _request_header(memoryview(buffer), len(buffer), flexible_from, make)
    return found


def _request_header(
    data: Bytes, end: int, flexible_from: dict[int, int], make: type[Header]
) -> tuple[Header, int] | None:
    key = _int16(data, 0)
    version = _int16(data, 2)
    length = _int16(data, 8)
    position = 10
    first = flexible_from.get(key)
    if length < -1 or first is None or length > end - position:
        return None
    client_id = None
    if length >= 0:
        for index in range(position, position + length):
            if data[index] > 127:
                return None
        client_id = _text(data, position, length)
        position += length
    if version >= first:
        if position >= end or data[position] != 0:
            return None
        position += 1
    return _new_header(make, key, version, _int32(data, 4), client_id), position


def _new_header(make: type[Header], key: int, version: int, correlation_id: int, client_id: str | None) -> Header:
    if cython.compiled:
        header = PyType_GenericAlloc(cython.cast(ClassPointer, make), 4)
        _fill(header, 0, key)
        _fill(header, 1, version)
        _fill(header, 2, correlation_id)
        _fill(header, 3, client_id)
        return header
    return tuple.__new__(make, (key, version, correlation_id, client_id))


def _fill(row: Any, index: int, value: Any) -> None:
    """Set an item of a new tuple."""
    if cython.compiled:
        Py_INCREF(value)
        PyTuple_SET_ITEM(row, index, value)
