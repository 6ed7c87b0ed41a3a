# The types of `_json_scalars.py` in compiled code.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from ottla.serde._builders cimport BinaryBuilder, BoolBuilder, Builder, DecimalBuilder, FloatBuilder, IntBuilder, Store
from ottla.serde._json_text cimport APOSTROPHE, MINUS, MISFIT, NINE, QUOTE, ZERO, Text
from ottla.serde._texts cimport POWERS
from ottla.serde._times cimport Moment

cdef uint64_t _LARGEST
cdef double _LARGEST_FLOAT
cdef int64_t _DAY_US
cdef uint64_t _MOST_SECONDS
cdef uint64_t _ALL_ONES


cdef class Reader:
    cdef readonly Builder column
    cdef readonly object words

    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1
    @cython.locals(after=Py_ssize_t)
    cdef Py_ssize_t other(self, Text text, Py_ssize_t at) except -1
    @cython.locals(out=Store)
    cdef Py_ssize_t misfit(self, Text text, Py_ssize_t at) except -1


cdef class BoolReader(Reader):
    cdef BoolBuilder into
    @cython.locals(after=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class IntReader(Reader):
    cdef IntBuilder into
    @cython.locals(byte=uint8_t, after=Py_ssize_t, value=int64_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class FloatReader(Reader):
    cdef FloatBuilder into
    cdef double largest
    @cython.locals(byte=uint8_t, after=Py_ssize_t, value=double)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class DecimalReader(Reader):
    cdef DecimalBuilder into
    cdef int scale
    cdef uint64_t limit
    @cython.locals(
        byte=uint8_t, begin=Py_ssize_t, is_quoted=bint, after=Py_ssize_t, end=Py_ssize_t, is_plain=bint, stop=Py_ssize_t
    )
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1
    @cython.locals(shift=int, value=uint64_t, power=uint64_t, rest=uint64_t)
    cdef bint rounded(self, Text text) except -1


cdef class StringReader(Reader):
    cdef BinaryBuilder into
    @cython.locals(byte=uint8_t, after=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class BinaryReader(Reader):
    cdef BinaryBuilder into
    @cython.locals(byte=uint8_t, after=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


@cython.locals(at=Py_ssize_t, end=Py_ssize_t, bits=int, count=int, i=int, sextet=int)
cdef bint _put_bytes(Store out, Store source) except -1
cdef int _sextet(uint8_t byte) noexcept


cdef class DateReader(Reader):
    cdef IntBuilder into
    cdef Moment moment
    @cython.locals(byte=uint8_t, after=Py_ssize_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1


cdef class TimestampReader(Reader):
    cdef IntBuilder into
    cdef Moment moment
    cdef bint is_moment
    @cython.locals(byte=uint8_t, after=Py_ssize_t, seconds=int64_t)
    cdef Py_ssize_t read(self, Text text, Py_ssize_t at) except -1
