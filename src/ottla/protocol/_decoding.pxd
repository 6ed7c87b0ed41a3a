# Types of `_decoding`; and functions of Python's that take other types in Cython's own declarations.
cimport cython
from cpython.object cimport PyTypeObject
from libc.stdint cimport uint8_t

from ottla.protocol._shapes cimport Shape

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    void PyObject_GC_UnTrack(object tracked)


@cython.freelist(4)
cdef class Reader:
    cdef const uint8_t* data
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef Py_ssize_t left
    cdef Py_ssize_t most
    cdef bint flexible
    cdef object buffer


cdef class Decoder:
    cdef Shape shape
    cdef bint flexible
    cdef str title
