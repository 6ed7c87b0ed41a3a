# The types of `_times.py` in compiled code.
cimport cython
from libc.stdint cimport int64_t, uint8_t

from ottla.serde._builders cimport Store
from ottla.serde._texts cimport put_digits
from ottla.serde._views cimport Bytes

cdef int64_t _DAY_US
cdef int64_t _MOST_DAYS
cdef int64_t _ERA
cdef int64_t _ERAS
cdef int64_t _EPOCH
cdef bytes _LENGTHS


@cython.locals(shifted=int64_t, of_year=int64_t)
cpdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept


cdef class Moment:
    cdef int64_t days
    cdef int64_t micros
    cdef bint has_zone
    cdef Bytes _data
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    cdef int64_t _number

    @cython.locals(is_negative=bint, begin=Py_ssize_t, year=int64_t, month=int64_t, day=int64_t)
    cdef bint date(self, Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(unit=int64_t, step=int)
    cdef bint time(self, Bytes data, Py_ssize_t at, Py_ssize_t end) noexcept
    @cython.locals(begin=Py_ssize_t)
    cdef Py_ssize_t _part(self, Py_ssize_t at) noexcept
    @cython.locals(worth=int64_t)
    cdef Py_ssize_t _fraction(self, Py_ssize_t at) noexcept
    @cython.locals(data=Bytes, end=Py_ssize_t, is_behind=bint, offset=int64_t, unit=int64_t, step=int)
    cdef bint _zone(self, Py_ssize_t at) noexcept


cdef int64_t _length(int64_t year, int64_t month) noexcept
@cython.locals(shifted=int64_t, of_era=int64_t, of_era_year=int64_t, month=int64_t, year=int64_t, day=int64_t)
cdef int put_date(Store out, int64_t days) except -1
@cython.locals(days=int64_t, rest=int64_t)
cdef int put_time(Store out, int64_t micros, bint has_zone) except -1
