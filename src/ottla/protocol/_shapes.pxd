# Types of `_shapes`.
cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member

# What a field is, in the order of `_KINDS`.
cdef enum:
    _BOOL
    _INT8
    _INT16
    _INT32
    _INT64
    _UINT16
    _UINT32
    _FLOAT64
    _UUID
    _STR
    _BYTES
    _RECORDS
    _STRUCT

# What a field that is not on the wire gets: always the same object, a new list, or a new struct.
cdef enum:
    _CONSTANT
    _NEW_LIST
    _NEW_STRUCT


cdef class Shape


cdef class Field:
    cdef int kind
    cdef int width
    cdef int tag
    cdef int default_is
    cdef bint exists
    cdef bint nullable
    cdef bint is_list
    cdef Py_ssize_t slot
    cdef Py_ssize_t smallest
    cdef str name
    cdef object default
    cdef Shape shape


cdef class Shape:
    cdef object cls
    cdef list fields
    cdef list tagged
    cdef Py_ssize_t count


cdef Shape shape_of(object cls, object version)
