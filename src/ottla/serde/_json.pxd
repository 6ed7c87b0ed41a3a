# The types of `_json.py` in compiled code.
cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from ottla.serde._builders cimport BinaryBuilder, ListBuilder, MapBuilder, Store, StructBuilder
from ottla.serde._json_scalars cimport Reader
from ottla.serde._json_text cimport BRACKET, BROKEN, CLOSE, CLOSING, COMMA, MISFIT, OPEN, QUOTE, Text
from ottla.serde._views cimport ByteRows, Bytes, Int32s, Room, is_utf8

cdef Py_ssize_t _FEW


@cython.locals(root=Reader, text=Text, row=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t)
cpdef object decode(object plan, ByteRows rows, object only_first=*)
cdef object _bad(Py_ssize_t row, Text text, Bytes data, Py_ssize_t begin, Py_ssize_t end, bint is_misfit)


cdef class StructReader(Reader):
    cdef StructBuilder into
    cdef list names
    cdef list children
    cdef Py_ssize_t count
    cdef Store letters
    cdef Store starts
    cdef Py_ssize_t last_plain
    cdef uint64_t mask
    cdef Store slots
    @cython.locals(
        data=Bytes, end=Py_ssize_t, row=Py_ssize_t, missing=Py_ssize_t, expected=Py_ssize_t, index=Py_ssize_t,
        child=Reader
    )
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1
    cdef Py_ssize_t _failed(self, Text text, Py_ssize_t failure, Py_ssize_t index) except -1
    @cython.locals(start=Py_ssize_t, size=Py_ssize_t, slot=Py_ssize_t, index=Py_ssize_t)
    cdef Py_ssize_t _field(self, Text text, Py_ssize_t at, Py_ssize_t expected) except -1
    @cython.locals(code=uint64_t, i=Py_ssize_t, slot=uint64_t, index=Py_ssize_t, first=Py_ssize_t)
    cdef Py_ssize_t _slot(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1


cdef bint _are_same(Bytes one, Py_ssize_t start, Bytes other, Py_ssize_t first, Py_ssize_t size) noexcept


cdef class ListReader(Reader):
    cdef ListBuilder into
    cdef Reader items
    @cython.locals(begin=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class MapReader(Reader):
    cdef MapBuilder into
    cdef BinaryBuilder keys
    cdef StructBuilder entries
    cdef Reader values
    @cython.locals(begin=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1
    cdef Py_ssize_t _key(self, Text text, Py_ssize_t at) except -1
    @cython.locals(start=Py_ssize_t)
    cdef bytes _key_at(self, Py_ssize_t row)
    @cython.locals(row=Py_ssize_t)
    cdef set _known(self, Py_ssize_t begin, set known)
    @cython.locals(last=Py_ssize_t, data=Room, ends=Int32s, size=Py_ssize_t, row=Py_ssize_t)
    cdef bint _is_duplicate(self, Py_ssize_t begin, set known) except -1
    @cython.locals(found=dict, where=Py_ssize_t, after=Py_ssize_t)
    cdef Py_ssize_t _read_with_duplicates(self, Text text, Py_ssize_t at) except -1
    cdef Py_ssize_t _failed(self, Text text, Py_ssize_t failure) except -1
