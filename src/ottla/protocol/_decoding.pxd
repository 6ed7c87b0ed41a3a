# Types of `_decoding`; and PyType_GenericAlloc, which takes an object in Cython's own declarations.
cimport cython
from cpython.object cimport PyTypeObject
from libc.stdint cimport uint8_t

from ottla.protocol._shapes cimport Shape

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)


@cython.freelist(4)
cdef class Reader:
    cdef const uint8_t* data
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef bint flexible
    cdef object buffer


cdef class Decoder:
    cdef Shape shape
    cdef bint flexible
    cdef str title
