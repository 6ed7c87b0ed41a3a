# Types of `_shapes`.
cdef extern from "Python.h":
    ctypedef struct PyMemberDef:
        Py_ssize_t offset

    ctypedef struct PyMemberDescrObject:
        PyMemberDef* d_member


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
