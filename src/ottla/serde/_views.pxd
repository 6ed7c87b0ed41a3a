# The types of `_views.py` in compiled code.
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

ctypedef const uint8_t* Bytes
ctypedef uint8_t* Room
ctypedef int16_t* Int16s
ctypedef int32_t* Int32s
ctypedef int64_t* Int64s
ctypedef uint64_t* UInt64s
ctypedef float* Floats
ctypedef double* Doubles


cdef inline bint is_ascii(Bytes data) noexcept nogil:
    """Whether eight bytes are."""
    cdef uint64_t word
    memcpy(&word, data, 8)
    return not word & <uint64_t>0x8080808080808080


cdef class Held:
    cdef Py_buffer _view
    cdef Py_ssize_t size
    cdef Bytes bytes
    cdef Int16s int16s
    cdef Int32s int32s
    cdef Int64s int64s
    cdef Floats floats
    cdef Doubles doubles


cdef class ColumnView:
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t first
    cdef readonly list children
    cdef list _held
    cdef bint has_nulls
    cdef bint is_wide
    cdef Bytes validity
    cdef Bytes bytes
    cdef Bytes data
    cdef Int16s int16s
    cdef Int32s int32s
    cdef Int64s int64s
    cdef Floats floats
    cdef Doubles doubles

    @cython.locals(at=Py_ssize_t)
    cdef bint is_null(self, Py_ssize_t row)
    @cython.locals(at=Py_ssize_t)
    cdef bint bit(self, Py_ssize_t row)
    cdef Py_ssize_t start(self, Py_ssize_t row)
    cdef Py_ssize_t end(self, Py_ssize_t row)


cdef class ByteRows(ColumnView):
    pass


@cython.locals(row=Py_ssize_t, before=Py_ssize_t, after=Py_ssize_t, last=Py_ssize_t)
cdef object _check_rows(ByteRows rows, Held validity, Held offsets, Held data)
cdef object _hold_view(ColumnView view, Held validity, Held values, Held data)

@cython.locals(i=Py_ssize_t, end=Py_ssize_t, first=uint8_t, second=Py_ssize_t, more=Py_ssize_t, low=uint8_t, high=uint8_t)
cdef bint is_utf8(Bytes data, Py_ssize_t start, Py_ssize_t size)
