# The C types of `_decoding.py`.
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ottla.protocol._shapes cimport (
    BOOL, BYTES, CONSTANT, INT8, INT16, INT32, INT64, NEW_LIST, STR, STRUCT, UINT16, UINT32, UUID, Field, Shape, shape_of
)

ctypedef const uint8_t* Bytes
ctypedef PyObject* ObjectPointer
ctypedef PyObject** SlotPointer
ctypedef PyTypeObject* ClassPointer

cdef extern from "Python.h":
    # Cython declares PyType_GenericAlloc with an object, which newer C compilers reject.
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    void PyObject_GC_UnTrack(object tracked)

cdef Py_ssize_t _MAX_ARRAY
cdef Py_ssize_t _MAX_STRING
cdef Py_ssize_t _MAX_TAGS
# As a literal it would be a Python object.
cdef uint64_t _MASK32


@cython.final
@cython.freelist(4)
cdef class Reader:
    cdef Bytes data
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef Py_ssize_t left
    cdef Py_ssize_t most
    cdef bint flexible
    cdef object buffer


@cython.final
cdef class Decoder:
    cdef Shape shape
    cdef bint flexible
    cdef str title

    @cython.locals(r=Reader, view=Py_buffer)
    cpdef tuple decode(self, object buffer, Py_ssize_t position, Py_ssize_t most=*)


@cython.locals(place=SlotPointer, old=ObjectPointer)
cdef inline void _set(object target, Field field, object value) noexcept
cdef inline object _new(Shape shape)
cdef inline list _new_list()
@cython.locals(index=Py_ssize_t, field=Field)
cdef object _new_default(Shape shape)
cdef inline object _default(Field field)
cdef int _raise_short(Reader r, Py_ssize_t size) except -1
cdef inline int _need(Reader r, Py_ssize_t size) except -1
cdef inline int _count(Reader r, int64_t elements) except -1
cdef inline int16_t _int16(Bytes data, Py_ssize_t at) noexcept
cdef inline uint32_t _uint32(Bytes data, Py_ssize_t at) noexcept
cdef inline int32_t _int32(Bytes data, Py_ssize_t at) noexcept
cdef inline int64_t _int64(Bytes data, Py_ssize_t at) noexcept
@cython.locals(bits=uint64_t, number=double)
cdef inline double _float64(Bytes data, Py_ssize_t at) noexcept
cdef inline bytes _bytes(Bytes data, Py_ssize_t at, Py_ssize_t size)
cdef inline str _text(Bytes data, Py_ssize_t at, Py_ssize_t size)
@cython.locals(value=uint64_t, byte=uint64_t, shift=int)
cdef int64_t _uvarint(Reader r) except -1
@cython.locals(length=int64_t)
cdef int64_t _length(Reader r, bint narrow) except -2
@cython.locals(data=Bytes, at=Py_ssize_t)
cdef object _read_fixed(Reader r, int kind)
@cython.locals(kind=int, length=int64_t, start=Py_ssize_t)
cdef object _read_sized(Reader r, Field field, bint nullable)
@cython.locals(count=int64_t, smallest=Py_ssize_t, items=list, _=int64_t)
cdef object _read_array(Reader r, Field field)
cdef object _read_field(Reader r, Field field, int null)
@cython.locals(index=Py_ssize_t, field=Field)
cdef object _read_struct(Reader r, Shape shape)
@cython.locals(count=int64_t, tag=int64_t, size=int64_t, stop=Py_ssize_t, field=Field, _=int64_t)
cdef int _read_tags(Reader r, Shape shape, object made) except -1

@cython.locals(view=Py_buffer)
cpdef object read_request_header(object buffer, dict flexible_from, type make)
@cython.locals(version=int, length=int, position=Py_ssize_t, index=Py_ssize_t)
cdef object _request_header(Bytes data, Py_ssize_t end, dict flexible_from, type make)
cdef object _new_header(type make, object key, object version, object correlation_id, object client_id)
cdef inline void _fill(object row, Py_ssize_t index, object value) noexcept
