# The C types of `_decode_columns.py`.
cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from ottla.records._record_reader cimport (
    BufferView, Bytes, FieldsPointer, RecordFields, int32_of, read_int64, read_number, read_record, read_uint32, view_of,
    wrap64
)

ctypedef uint8_t* Memory
ctypedef int32_t* Int32s
ctypedef int64_t* Int64s

cdef struct BatchSpan:
    Py_ssize_t start
    Py_ssize_t end
    Py_ssize_t count
    int64_t base_offset
    int64_t base_timestamp
    bint has_append_time
    int64_t append_time

ctypedef BatchSpan* SpanPointer

cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _MIN_BATCH_LENGTH
cdef Py_ssize_t _MIN_RECORD_SIZE
cdef Py_ssize_t _CRC_START
cdef int _NOT_PLAIN
cdef int _LOG_APPEND_TIME
cdef Py_ssize_t _LARGEST_DATA
cdef int _MALFORMED
cdef int _ALL
cdef int _CUT


@cython.final
cdef class Store:
    cdef bytearray content
    cdef Memory bytes
    cdef Int32s int32s
    cdef Int64s int64s
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    cdef int reserve(self, Py_ssize_t more) except -1
    cdef int _grow(self, Py_ssize_t more) except -1
    cdef inline int append(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cdef bytearray close(self, Py_ssize_t size)


@cython.final
cdef class BinaryStore:
    cdef Store data
    cdef Store ends
    cdef Store validity
    cdef Py_ssize_t nulls

    cdef int reserve(self, Py_ssize_t fields) except -1
    @cython.locals(byte=uint8_t)
    cdef inline int put(self, Py_ssize_t index, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1
    cdef object close(self, Py_ssize_t fields)


@cython.final
cdef class HeaderStore:
    cdef Py_ssize_t count
    cdef Store ends
    cdef BinaryStore names
    cdef BinaryStore values

    @cython.locals(position=Py_ssize_t, fields=Py_ssize_t, size=Py_ssize_t, _=Py_ssize_t)
    cdef int add(self, Bytes data, FieldsPointer record) except -1
    @cython.locals(high=uint8_t, index=Py_ssize_t, name=BufferView)
    cdef int _add_name(self, Bytes data, Py_ssize_t start, Py_ssize_t size) except -1


@cython.final
cdef class TimeRuns:
    cdef list ended
    cdef Py_ssize_t start
    cdef bint is_append_time

    cdef int end(self, Py_ssize_t rows) except -1


@cython.final
cdef class Mark:
    cdef Py_ssize_t rows
    cdef Py_ssize_t size
    cdef Py_ssize_t headers
    cdef Py_ssize_t keys
    cdef Py_ssize_t values
    cdef Py_ssize_t names
    cdef Py_ssize_t header_values
    cdef Py_ssize_t null_keys
    cdef Py_ssize_t null_values
    cdef Py_ssize_t null_header_values


@cython.final
cdef class Columns:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size
    cdef readonly bint full
    cdef Py_ssize_t _most_rows
    cdef Py_ssize_t _most_bytes
    cdef Py_ssize_t _capacity
    cdef Store _offsets
    cdef Store _timestamps
    cdef BinaryStore _keys
    cdef BinaryStore _values
    cdef HeaderStore _headers
    cdef TimeRuns _runs
    cdef bint _is_closed
    cdef Mark _mark
    cdef int64_t _wanted

    @cython.locals(view=BufferView, span=BatchSpan, batch=SpanPointer, outcome=int)
    cpdef object add_records(self, object records, int64_t wanted)
    @cython.locals(
        view=BufferView, data=Bytes, span=BatchSpan, batch=SpanPointer, epoch=int32_t, length=Py_ssize_t,
        attributes=int, end=Py_ssize_t, last_delta=int32_t, after=int64_t, outcome=int
    )
    cpdef tuple add_batches(self, object buffer, Py_ssize_t position, int64_t wanted, bint check_crcs)
    @cython.locals(headers=HeaderStore)
    cpdef object close(self)
    cdef int _check_open(self) except -1
    @cython.locals(wanted=int64_t, outcome=int)
    cdef int _add(self, Bytes data, SpanPointer batch) except -1
    @cython.locals(
        fields=RecordFields, record=FieldsPointer, position=Py_ssize_t, end=Py_ssize_t, base_offset=int64_t,
        base_timestamp=int64_t, has_append_time=bint, append_time=int64_t, row=Py_ssize_t, offset=int64_t,
        wanted=int64_t, is_cut=bint, offsets=Int64s, timestamps=Int64s, headers=HeaderStore, header_ends=Int32s,
        _=Py_ssize_t
    )
    cdef int _add_rows(self, Bytes data, SpanPointer batch) except -1
    cdef int _reserve(self, Py_ssize_t rows) except -1
    cdef void _save_mark(self) noexcept
    cdef void _return_to_mark(self) noexcept


@cython.locals(start=Py_ssize_t)
cdef int _is_crc_right(Bytes data, Py_ssize_t position, Py_ssize_t end) except -1
@cython.locals(
    text=bytes, count=Py_ssize_t, size=Py_ssize_t, rows=Py_ssize_t, ends=Store, data=Store, index=Py_ssize_t,
    repeated=BufferView, _=Py_ssize_t
)
cpdef object repeat_texts(list runs)
@cython.locals(view=BufferView, data=Bytes, position=Py_ssize_t, last=Py_ssize_t, length=Py_ssize_t)
cpdef tuple whole_batches(object buffer)
