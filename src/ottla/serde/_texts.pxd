# The types of `_texts.py` in compiled code.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, strlen

from ottla.serde._builders cimport Store
from ottla.serde._views cimport Bytes

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) except NULL
    void PyMem_Free(void* memory)

cdef Store POWERS
cdef bytes _SHORTENED
cdef bytes _MEANT
cdef bytes _HEX
cdef bytes _BASE64


cdef inline bint is_plain(Bytes data, uint8_t quote) noexcept nogil:
    """Whether none of eight bytes is the quote, a backslash, or a control character."""
    cdef uint64_t word, quotes, slashes
    memcpy(&word, data, 8)
    quotes = word ^ (<uint64_t>0x0101010101010101 * quote)
    slashes = word ^ <uint64_t>0x5C5C5C5C5C5C5C5C
    return not (
        (
            (word - <uint64_t>0x2020202020202020) & ~word
            | (quotes - <uint64_t>0x0101010101010101) & ~quotes
            | (slashes - <uint64_t>0x0101010101010101) & ~slashes
        )
        & <uint64_t>0x8080808080808080
    )


cdef inline double narrowed(double value) noexcept nogil:
    return <float>value


cdef inline uint64_t whole(double value) noexcept nogil:
    return <uint64_t>value


@cython.locals(rest=uint64_t)
cdef int put_int(Store out, int64_t value) except -1
@cython.locals(count=int, rest=uint64_t, at=Py_ssize_t)
cdef int put_digits(Store out, uint64_t value, int least) except -1
@cython.locals(size=double, scaled=uint64_t)
cdef int put_double(Store out, double value) except -1
@cython.locals(text=cython.p_char)
cdef int _put_repr(Store out, double value) except -1
@cython.locals(size=double, scaled=uint64_t, power=uint64_t, places=int)
cdef int put_float(Store out, double value) except -1
@cython.locals(power=uint64_t)
cdef int _put_scaled(Store out, uint64_t scaled, int places) except -1
cdef object _shortest_double(double value)
cdef object _shortest_float(double value)
@cython.locals(at=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, byte=uint8_t)
cdef int put_quoted(Store out, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
@cython.locals(i=int)
cdef int _put_escape(Store out, uint8_t byte) except -1
@cython.locals(alphabet=bytes, at=Py_ssize_t, end=Py_ssize_t, left=Py_ssize_t, bits=int)
cdef int put_base64(Store out, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
cdef uint64_t _nearest(double value) noexcept
cdef double _as_float(double value) noexcept
