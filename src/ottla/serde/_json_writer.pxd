# The types of `_json_writer.py` in compiled code.
cimport cython
from libc.stdint cimport int64_t, uint64_t

from ottla.serde._builders cimport BinaryBuilder, Store
from ottla.serde._texts cimport POWERS, put_base64, put_digits, put_double, put_float, put_int, put_quoted
from ottla.serde._times cimport put_date, put_time
from ottla.serde._views cimport ColumnView



cdef class Writer:
    cdef readonly ColumnView view
    cdef int write(self, Store out, Py_ssize_t row) except -1
    cdef int write_item(self, Store out, Py_ssize_t row) except -1


cdef class IntWriter(Writer):
    cdef int width
    @cython.locals(at=Py_ssize_t, small=int)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class BoolWriter(Writer):
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class FloatWriter(Writer):
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class DoubleWriter(Writer):
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class DecimalWriter(Writer):
    cdef int scale
    @cython.locals(at=Py_ssize_t, low=int64_t, high=int64_t, size=uint64_t, power=uint64_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class StringWriter(Writer):
    @cython.locals(start=Py_ssize_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class BytesWriter(Writer):
    @cython.locals(start=Py_ssize_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class DateWriter(Writer):
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class TimeWriter(Writer):
    cdef bint is_moment
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class StructWriter(Writer):
    cdef list children
    cdef Py_ssize_t count
    cdef Store letters
    cdef Store ends
    @cython.locals(is_first=Py_ssize_t, i=Py_ssize_t, child=Writer, start=Py_ssize_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class ListWriter(Writer):
    cdef Writer items
    @cython.locals(begin=Py_ssize_t, item=Py_ssize_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


cdef class MapWriter(Writer):
    cdef Writer keys
    cdef Writer values
    cdef bint are_texts
    @cython.locals(begin=Py_ssize_t, item=Py_ssize_t)
    cdef int write(self, Store out, Py_ssize_t row) except -1


@cython.locals(writer=Writer, out=BinaryBuilder, row=Py_ssize_t)
cpdef object encode(object plan, ColumnView view)
