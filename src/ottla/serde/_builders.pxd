# The types of `_builders.py` in compiled code.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from ottla.serde._views cimport Bytes, Doubles, Floats, Held, Int16s, Int32s, Int64s, Room, UInt64s, is_utf8

cdef Py_ssize_t LARGEST_DATA


cdef class Store:
    cdef object content
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef Room bytes
    cdef Int16s int16s
    cdef Int32s int32s
    cdef Int64s int64s
    cdef UInt64s uint64s
    cdef Floats floats
    cdef Doubles doubles

    cpdef int reserve(self, Py_ssize_t more) except -1
    cdef int _locate(self) except -1
    cdef int put_byte(self, uint8_t value) except -1
    cdef int put(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cpdef int put_value(self, object value) except -1
    cpdef object close(self, Py_ssize_t size)


cdef class Builder:
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t nulls
    cdef Store validity

    cdef int _append_valid(self) except -1
    @cython.locals(i=Py_ssize_t)
    cdef int _append_invalid(self) except -1
    cpdef int append_null(self) except -1
    @cython.locals(row=Py_ssize_t)
    cpdef int truncate(self, Py_ssize_t length) except -1
    cdef object _close_validity(self)
    cpdef object finish(self)


cdef class BoolBuilder(Builder):
    cdef Store values
    @cython.locals(at=Py_ssize_t)
    cdef int _place(self, int value) except -1
    cpdef int append_null(self) except -1
    cpdef int append_bool(self, bint value) except -1
    cpdef object finish(self)


cdef class FixedBuilder(Builder):
    cdef readonly int width
    cdef Store values
    cdef Py_ssize_t room
    cdef int _grow(self) except -1
    @cython.locals(i=Py_ssize_t)
    cpdef int append_null(self) except -1
    cpdef object finish(self)


cdef class IntBuilder(FixedBuilder):
    cpdef int append_int(self, int64_t value) except -1


cdef class FloatBuilder(FixedBuilder):
    cpdef int append_float(self, double value) except -1


cdef class DecimalBuilder(FixedBuilder):
    cdef readonly int precision
    cdef readonly int scale
    cdef bytes _largest
    cdef bytes _smallest
    @cython.locals(at=Py_ssize_t)
    cpdef int append_words(self, int64_t high, uint64_t low) except -1
    @cython.locals(at=Py_ssize_t, i=Py_ssize_t, sign=uint8_t, limit=Bytes, byte=uint8_t)
    cdef int append_big_endian(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cpdef int append_unscaled(self, object value) except -1


cdef class EndsBuilder(Builder):
    cdef Store ends
    cdef int _end_at(self, Py_ssize_t end) except -1
    cpdef int truncate(self, Py_ssize_t length) except -1
    cdef object _close_ends(self)


cdef class BinaryBuilder(EndsBuilder):
    cdef readonly Store data
    cpdef int append_null(self) except -1
    cdef int append_bytes(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cdef int append_text(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cpdef int append_rest(self) except -1
    cpdef int append_value(self, object value) except -1
    cpdef int truncate(self, Py_ssize_t length) except -1
    cpdef object finish(self)


cdef class StructBuilder(Builder):
    cdef readonly list children
    cpdef int append(self) except -1
    @cython.locals(child=Builder)
    cpdef int append_null(self) except -1
    @cython.locals(child=Builder)
    cpdef int truncate(self, Py_ssize_t length) except -1
    cpdef object finish(self)


cdef class ListBuilder(EndsBuilder):
    cdef readonly Builder items
    cpdef int append(self) except -1
    cpdef int append_null(self) except -1
    cpdef int truncate(self, Py_ssize_t length) except -1
    cpdef object finish(self)


cdef class MapBuilder(ListBuilder):
    cdef readonly StructBuilder entries
    cdef readonly Builder keys
    cdef readonly Builder values
