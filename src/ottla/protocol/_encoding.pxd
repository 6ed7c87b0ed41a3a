# The C types of `_encoding.py`.
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from ottla.protocol._shapes cimport (
    BOOL, CONSTANT, FLOAT64, NEW_LIST, RECORDS, STR, STRUCT, UUID, Field, Shape, shape_of
)

ctypedef uint8_t* Memory
ctypedef PyObject* ObjectPointer
ctypedef PyObject** SlotPointer

cdef Py_ssize_t _MAX_STRING
cdef Py_ssize_t _COPY_BELOW
cdef Py_ssize_t _FIRST_CAPACITY
cdef int _NULL
cdef int _NULL_IN_TAG
# As a literal it would be a Python object.
cdef uint64_t _MASK32


@cython.final
@cython.freelist(4)
cdef class Writer:
    cdef Memory data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef Py_ssize_t tagged_depth
    cdef bint flexible
    cdef list parts


@cython.final
cdef class Encoder:
    cdef Shape shape
    cdef bint flexible
    cdef str title
    cdef Py_ssize_t head_size

    @cython.locals(w=Writer)
    cpdef object encode(self, object message, list parts)
    @cython.locals(w=Writer, size=int64_t, head=Memory)
    cpdef list encode_frame(self, object message, int32_t correlation_id)
    @cython.locals(w=Writer)
    cdef Writer _writer(self, list parts)
    cdef int _write(self, Writer w, object message) except -1


@cython.locals(place=ObjectPointer)
cdef inline object _get(Shape shape, object source, Field field)
@cython.locals(capacity=Py_ssize_t)
cdef int _grow(Writer w, Py_ssize_t more) except -1
cdef inline int _reserve(Writer w, Py_ssize_t more) except -1
@cython.locals(shift=int)
cdef inline void _put_number(Memory data, Py_ssize_t at, uint64_t value, int width) noexcept
cdef inline void _put(Writer w, uint64_t value, int width) noexcept
cdef inline void _put_bytes(Writer w, bytes value, Py_ssize_t size) noexcept
@cython.locals(view=Py_buffer)
cdef int _put_buffer(Writer w, Field field, object value, Py_ssize_t size) except -1
@cython.locals(number=double, bits=uint64_t)
cdef int _put_double(Writer w, object value) except -1
cdef int _put_uvarint(Writer w, uint64_t value) except -1
cdef int _put_length(Writer w, Py_ssize_t length, bint narrow) except -1
cdef bytes _take(Writer w)
@cython.locals(number=int64_t)
cdef int _write_fixed(Writer w, Field field, object value) except -1
cdef int _write_sized(Writer w, Field field, object value, bint nullable) except -1
@cython.locals(size=Py_ssize_t, text=str)
cdef int _write_string(Writer w, Field field, object value) except -1
@cython.locals(size=Py_ssize_t)
cdef int _write_bytes(Writer w, Field field, object value) except -1
@cython.locals(size=Py_ssize_t)
cdef int _write_encoded(Writer w, bytes value) except -1
cdef int _write_array(Writer w, Field field, object value) except -1
cdef int _write_items(Writer w, Field field, object items) except -1
cdef int _write_field(Writer w, Field field, object value, int null) except -1
@cython.locals(index=Py_ssize_t, field=Field)
cdef int _write_struct(Writer w, Shape shape, object source) except -1
@cython.locals(field=Field, count=Py_ssize_t)
cdef int _write_tags(Writer w, Shape shape, object source) except -1
@cython.locals(start=Py_ssize_t, size=Py_ssize_t)
cdef int _write_tagged(Writer w, Field field, object value) except -1
@cython.locals(few=uint64_t, count=Py_ssize_t)
cdef int _rotate(Writer w, Py_ssize_t start, Py_ssize_t size) except -1
@cython.locals(index=Py_ssize_t, shape=Shape, part=Field)
cdef int _differs(Field field, object value) except -1
@cython.locals(field=Field)
cdef Shape _part_of(Shape shape, object cls)
