# The C types of `_record_reader.py`.
cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from ottla.records._castagnoli cimport ottla_computes_crc, ottla_crc32c

ctypedef const uint8_t* Bytes

cdef extern from "Python.h":
    # Cython declares PyType_GenericAlloc with an object, which newer C compilers reject.
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    int PyGC_Disable()
    int PyGC_Enable()
    void PyObject_GC_UnTrack(void* object)


cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _MIN_BATCH_LENGTH
cdef Py_ssize_t _MIN_RECORD_SIZE
cdef Py_ssize_t _CRC_START
cdef uint8_t _NOT_TRANSACTIONAL
cdef Py_ssize_t _LARGEST_OWN_CRC
cdef int64_t _FARTHEST
cdef bint _COMPUTES_CRC
# As literals these would be Python objects.
cdef uint64_t MASK32
cdef uint64_t MASK64


cdef inline int64_t wrap64(int64_t value) noexcept nogil:
    """Sums wrap in C, which is compiled with -fwrapv."""
    return value


@cython.final
@cython.freelist(4)
cdef class BufferView:
    cdef Py_buffer _view
    cdef Bytes data
    cdef Py_ssize_t size


ctypedef struct RecordFields:
    int64_t number
    Py_ssize_t begin
    Py_ssize_t body
    Py_ssize_t after_timestamp
    Py_ssize_t end
    int64_t timestamp_delta
    int32_t offset_delta
    Py_ssize_t key
    Py_ssize_t key_size
    Py_ssize_t value
    Py_ssize_t value_size
    Py_ssize_t header_count
    Py_ssize_t headers


ctypedef struct WalkResult:
    Py_ssize_t sound
    Py_ssize_t position
    int64_t least
    int64_t greatest
    Py_ssize_t null_keys
    Py_ssize_t misplaced


ctypedef RecordFields* FieldsPointer
ctypedef WalkResult* ResultPointer


@cython.locals(view=BufferView)
cdef BufferView view_of(object buffer)
cdef uint32_t read_uint32(Bytes data, Py_ssize_t position) noexcept
cdef int64_t read_int64(Bytes data, Py_ssize_t position) noexcept
cdef int32_t int32_of(uint32_t number) noexcept

@cython.locals(rest=uint64_t, shift=int, byte=uint8_t)
cdef Py_ssize_t read_number(Bytes data, Py_ssize_t position, Py_ssize_t end, int bits, RecordFields* record) noexcept

@cython.locals(first=int32_t, second=int32_t, third=int32_t)
cdef Py_ssize_t _read_short(Bytes data, Py_ssize_t position, RecordFields* record) noexcept
cdef bint read_record(Bytes data, Py_ssize_t position, Py_ssize_t end, RecordFields* record) noexcept

@cython.locals(count=uint8_t)
cdef bint _read_short_record(Bytes data, Py_ssize_t position, Py_ssize_t end, RecordFields* record) noexcept
cdef bint _read_any_record(Bytes data, Py_ssize_t position, Py_ssize_t end, RecordFields* record) noexcept

@cython.locals(fields=RecordFields, header=FieldsPointer, _=Py_ssize_t)
cdef bint _headers_fill(Bytes data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count) noexcept

@cython.locals(
    fields=RecordFields, record=FieldsPointer, more_fields=RecordFields,
    unusual=FieldsPointer, index=Py_ssize_t, least=int64_t, greatest=int64_t, null_keys=Py_ssize_t,
    misplaced=Py_ssize_t
)
cdef void _walk(Bytes data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count, WalkResult* result) noexcept
cdef object check_span(Py_ssize_t size, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count)

@cython.locals(view=BufferView, result=WalkResult, found=ResultPointer)
cpdef tuple walk_records(object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count)

@cython.locals(view=BufferView, crc=uint32_t)
cpdef object plain_batch(object buffer, Py_ssize_t most_bytes, type make)

@cython.locals(
    count=int32_t, base_timestamp=int64_t, producer_id=int64_t, base_sequence=int32_t, result=WalkResult,
    found=ResultPointer
)
cdef object _plain_batch(Bytes data, Py_ssize_t end, uint32_t crc, type make)
cdef void _fill(object row, Py_ssize_t index, object value) noexcept
cdef object _part(Bytes data, Py_ssize_t start, Py_ssize_t size)

@cython.locals(position=Py_ssize_t, name_size=Py_ssize_t, _=Py_ssize_t)
cdef list _read_headers(Bytes data, RecordFields* record)

@cython.locals(collects=int)
cpdef list decode_records(object records, type make)

@cython.locals(
    start=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t, base_offset=int64_t, base_timestamp=int64_t, view=BufferView,
    data=Bytes, fields=RecordFields, record=FieldsPointer, position=Py_ssize_t, index=Py_ssize_t, offset=int64_t,
    timestamp=int64_t
)
cdef list _decode_records(object records, type make)
cdef object _make_record(type make, object offset, object timestamp, object key, object value, list headers)

@cython.locals(
    view=BufferView, data=Bytes, fields=RecordFields, record=FieldsPointer, position=Py_ssize_t,
    index=Py_ssize_t, offset=int64_t
)
cpdef list decode_keys(object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, int64_t base_offset)
