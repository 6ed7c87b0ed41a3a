# The C types of `_record_writer.py`.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ottla.records._record_reader cimport (
    BufferView, Bytes, FieldsPointer, RecordFields, check_span, read_record, view_of, wrap64
)

ctypedef uint8_t* Memory

cdef extern from "Python.h":
    ctypedef struct PyByteArrayObject:
        Py_ssize_t ob_alloc

ctypedef PyByteArrayObject* ByteArrayPointer

cdef Py_ssize_t _HEADER_SIZE
# As a literal it would be a Python object.
cdef uint32_t _MURMUR2_SEED


cdef int _resize(bytearray out, Py_ssize_t size) except -1
cdef inline Memory _memory(bytearray out) noexcept
cdef inline Py_ssize_t _copy(Memory target, Py_ssize_t position, Bytes data, Py_ssize_t start, Py_ssize_t size) noexcept
cdef inline uint64_t _zigzag(int64_t value) noexcept
@cython.locals(rest=uint64_t, size=Py_ssize_t)
cdef inline Py_ssize_t _size_of(int64_t value) noexcept
@cython.locals(rest=uint64_t)
cdef inline Py_ssize_t _write_number(Memory target, Py_ssize_t position, int64_t value) noexcept
cdef inline Py_ssize_t _size_of_field(Py_ssize_t size) noexcept
@cython.locals(view=BufferView)
cpdef uint32_t murmur2(object key) except? 0
cdef inline uint32_t _low32(uint32_t number) noexcept
@cython.locals(word=Bytes)
cdef inline uint32_t _word_at(Bytes data, Py_ssize_t position) noexcept
@cython.locals(hashed=uint32_t, end=Py_ssize_t, word=uint32_t, rest=Py_ssize_t)
cdef uint32_t hash_of(Bytes data, Py_ssize_t position, Py_ssize_t size) noexcept

@cython.locals(
    view=BufferView, fields=RecordFields, record=FieldsPointer, chosen=Bytes, data=Bytes, kept=Py_ssize_t, first=int64_t,
    greatest=int64_t, out=bytearray, target=Memory, used=Py_ssize_t, position=Py_ssize_t, index=Py_ssize_t,
    moved=int64_t, rest=Py_ssize_t
)
cpdef tuple keep_records(
    object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, bytes mask, int64_t shift
)

@cython.locals(
    base_timestamp=int64_t, max_timestamp=int64_t, timestamp=int64_t, delta=int64_t, last=int32_t, count=Py_ssize_t,
    used=Py_ssize_t, capacity=Py_ssize_t, body=Py_ssize_t, out=bytearray, pairs=list
)
cpdef tuple encode_records(object records, object offset_deltas)

@cython.locals(pairs=list, body=Py_ssize_t, used=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t append_record(
    bytearray out, int64_t delta, int32_t index, object key, object value, object headers
) except -1
cdef inline Py_ssize_t _length(object field) noexcept
cdef inline object _as_bytes(object field)
cdef list _encode_headers(object headers)
cdef inline Py_ssize_t _size_of_bytes(object field) noexcept
@cython.locals(body=Py_ssize_t)
cdef inline Py_ssize_t _size_of_body(int64_t delta, int32_t index, object key, object value, list pairs) noexcept
cdef inline Py_ssize_t _write_start(
    Memory target, Py_ssize_t position, Py_ssize_t body, int64_t delta, int32_t index
) noexcept
cdef inline Py_ssize_t _write_fields(Memory target, Py_ssize_t position, object key, object value, list pairs) noexcept
@cython.locals(size=Py_ssize_t)
cdef inline Py_ssize_t _write_bytes(Memory target, Py_ssize_t position, object field) noexcept
