# Types of `_encoding`.
cimport cython
from libc.stdint cimport uint8_t

from ottla.protocol._shapes cimport Shape


@cython.freelist(4)
cdef class Writer:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef Py_ssize_t whole
    cdef bint flexible
    cdef list parts


cdef class Encoder:
    cdef Shape shape
    cdef bint flexible
    cdef str title
    cdef Py_ssize_t head

    cdef Writer _writer(self, list parts)
    cdef int _write(self, Writer w, object message) except? -1
