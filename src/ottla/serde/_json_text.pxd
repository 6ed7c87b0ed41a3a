# The types of `_json_text.py` in compiled code.
cimport cython
from libc.math cimport fma
from libc.stdint cimport int64_t, uint8_t, uint64_t

from ottla.serde._builders cimport Store
from ottla.serde._texts cimport is_plain, put_double, put_quoted
from ottla.serde._views cimport Bytes, Room

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** after, void* overflow) except? -1.0

ctypedef const char* CharPointer

cdef enum:
    QUOTE = 34
    APOSTROPHE = 39
    BACKSLASH = 92
    COMMA = 44
    COLON = 58
    OPEN = 123
    CLOSE = 125
    BRACKET = 91
    CLOSING = 93
    PLUS = 43
    MINUS = 45
    DOT = 46
    ZERO = 48
    NINE = 57
    BLANK = 32
    BROKEN = -2
    MISFIT = -3
    DEEPEST = 1000

cdef uint64_t _EXACT
cdef bytes _SHORTENED
cdef bytes _MEANT
cdef int _LARGEST_EXPONENT
cdef double _INFINITY
cdef Store _powers


cdef inline double divided(uint64_t digits, double power) noexcept nogil:
    """Return the double nearest to digits / power, or -1 if it is uncertain. `power` must be exact."""
    cdef double high = <double>digits
    cdef double low = <double><int64_t>(digits - <uint64_t>high)
    cdef double first = high / power
    cdef double more = (fma(-first, power, high) + low) / power
    cdef double rounded = first + more
    cdef double left = more - (rounded - first)
    # `left` is the remainder that rounding removed. The result is uncertain if a slightly larger remainder would
    # change it.
    return rounded if rounded + left * (1 + 1e-10) == rounded else -1


cdef class Text:
    cdef Bytes data
    cdef Py_ssize_t end
    cdef Py_ssize_t first
    cdef Py_ssize_t last
    cdef bint escaped
    cdef uint64_t digits
    cdef int exponent
    cdef bint negative
    cdef bint whole
    cdef bint cut
    cdef double real
    cdef readonly Store scratch
    cdef Store nest
    cdef public list path
    cdef public object misfit

    cdef int look_at(self, Bytes data, Py_ssize_t end) except -1
    cdef Py_ssize_t blank(self, Py_ssize_t at) except -1
    @cython.locals(data=Bytes, end=Py_ssize_t, quote=uint8_t, byte=uint8_t)
    cdef Py_ssize_t string(self, Py_ssize_t at) except -1
    @cython.locals(byte=uint8_t)
    cdef Py_ssize_t _escape(self, Py_ssize_t at) except -1
    @cython.locals(i=int, unit=int, byte=uint8_t)
    cdef int _unit(self, Py_ssize_t at) except -1
    @cython.locals(last=Py_ssize_t, begin=Py_ssize_t, byte=uint8_t, i=int)
    cdef int put_string(self, Store out) except -1
    @cython.locals(unit=int, low=int)
    cdef Py_ssize_t _put_unit(self, Store out, Py_ssize_t at) except -1
    cdef int unescape(self) except -1
    @cython.locals(data=Bytes, end=Py_ssize_t, digits=uint64_t, count=int, exponent=int, begin=Py_ssize_t)
    cdef Py_ssize_t number(self, Py_ssize_t at) except -1
    @cython.locals(exponent=int, is_negative=bint, begin=Py_ssize_t)
    cdef Py_ssize_t _exponent(self, Py_ssize_t at) except -1
    @cython.locals(value=double)
    cdef double double(self, Py_ssize_t begin, Py_ssize_t after) except? -1
    cdef double _slow_double(self, Py_ssize_t begin, Py_ssize_t after) except? -1
    @cython.locals(data=Bytes, after=Py_ssize_t, is_negative=bint, has_sign=bint)
    cdef Py_ssize_t special(self, Py_ssize_t at) except -1
    @cython.locals(i=Py_ssize_t)
    cdef Py_ssize_t word(self, Py_ssize_t at, Bytes word, Py_ssize_t size) except -1
    @cython.locals(data=Bytes, nest=Room, depth=Py_ssize_t, byte=uint8_t)
    cdef Py_ssize_t value(self, Py_ssize_t at, Store out) except -1
    cdef Py_ssize_t _key(self, Py_ssize_t at, Store out) except -1
    cdef Py_ssize_t colon(self, Py_ssize_t at, Store out) except -1
    @cython.locals(byte=uint8_t, after=Py_ssize_t, begin=Py_ssize_t)
    cdef Py_ssize_t _scalar(self, Py_ssize_t at, Store out) except -1
    cdef int _put_again(self, Store out, uint8_t quote) except -1
