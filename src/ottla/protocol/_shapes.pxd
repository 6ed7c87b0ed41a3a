# The C types of `_shapes.py`.
cimport cython
from libc.stdint cimport int64_t

# Before CPython 3.12, Python.h only declares PyMemberDef.
cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

cdef extern from "Python.h":
    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

ctypedef PyMemberDescrObject* DescriptorPointer

# In the order of KINDS.
cdef enum:
    BOOL
    INT8
    INT16
    INT32
    INT64
    UINT16
    UINT32
    FLOAT64
    UUID
    STR
    BYTES
    RECORDS
    STRUCT

cdef enum:
    CONSTANT
    NEW_LIST
    NEW_STRUCT


cdef class Shape


@cython.final
cdef class Field:
    cdef int kind
    cdef int width
    cdef int tag
    cdef int default_is
    cdef bint exists
    cdef bint nullable
    cdef bint is_list
    cdef int64_t least
    cdef int64_t greatest
    cdef Py_ssize_t slot
    cdef Py_ssize_t smallest
    cdef str name
    cdef object default
    cdef Shape shape


@cython.final
cdef class Shape:
    cdef object cls
    cdef list fields
    cdef list tagged
    cdef Py_ssize_t count


cdef Shape shape_of(object cls, object version)
@cython.locals(shape=Shape, field=Field)
cdef Shape _shape_of(object cls, object version, dict known)
@cython.locals(field=Field)
cdef Field _field_of(object cls, object plan, object version, dict known)
@cython.locals(size=Py_ssize_t, field=Field)
cdef Py_ssize_t _measure(Shape shape, bint is_flexible) except -1
