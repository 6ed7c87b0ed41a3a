# The types of `_avro_write.py` in compiled code.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from ottla.serde._builders cimport BinaryBuilder, Store
from ottla.serde._views cimport Bytes, ColumnView, Held

cdef int PUT_NULL, PUT_BOOL, PUT_INT8, PUT_INT16, PUT_INT32, PUT_INT64, PUT_FLOAT
cdef int PUT_DOUBLE, PUT_BYTES, PUT_FIXED, PUT_ENUM, PUT_DECIMAL, PUT_FIXED_DECIMAL, PUT_RECORD
cdef int PUT_ARRAY, PUT_MAP, PUT_MEMBERS, IS_NULL, OTHER_SIZE, NO_SYMBOL, TOO_LARGE


cdef class WriteStep:
    cdef readonly int op
    cdef readonly str path
    cdef readonly list steps
    cdef Py_ssize_t count
    cdef public Py_ssize_t child
    cdef public Py_ssize_t size
    cdef public int64_t branch
    cdef public int64_t null_branch
    cdef public list symbols
    cdef ColumnView view

    cpdef bind(self, ColumnView view)


@cython.final
cdef class Writer:
    cdef Store out
    cdef readonly WriteStep failed
    cdef readonly int reason

    cdef bint _fail(self, WriteStep step, int reason)
    @cython.locals(rest=uint64_t, store=Store)
    cdef int _put_number(self, int64_t value) except -1
    @cython.locals(i=Py_ssize_t, view=ColumnView)
    cdef int write(self, WriteStep step, Py_ssize_t row) except -1
    @cython.locals(at=Py_ssize_t, view=ColumnView, value=int64_t, millis=int64_t)
    cdef int _write_number(self, WriteStep step, Py_ssize_t row) except -1
    @cython.locals(view=ColumnView, start=Py_ssize_t, size=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, symbol=Held)
    cdef int _write_bytes(self, WriteStep step, Py_ssize_t row) except -1
    @cython.locals(data=Bytes, start=Py_ssize_t, size=Py_ssize_t, sign=uint8_t, i=Py_ssize_t)
    cdef int _write_decimal(self, WriteStep step, Py_ssize_t row) except -1
    @cython.locals(view=ColumnView, start=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, items=WriteStep, keys=WriteStep)
    cdef int _write_blocks(self, WriteStep step, Py_ssize_t row) except -1
    @cython.locals(member=WriteStep, i=Py_ssize_t)
    cdef int _write_member(self, WriteStep step, Py_ssize_t row) except -1


@cython.locals(row=Py_ssize_t, writer=Writer)
cdef object _encode(WriteStep step, BinaryBuilder builder, ColumnView view)
