# The C types of `_encode_columns.py`.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ottla.records._record_reader cimport BufferView, Bytes, view_of
from ottla.records._record_writer cimport hash_of

ctypedef uint8_t* Memory
ctypedef const int32_t* Int32s
ctypedef const int64_t* Int64s

cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _RECORD_OVERHEAD
cdef Py_ssize_t _PAIR_OVERHEAD


@cython.locals(rest=uint64_t, size=Py_ssize_t)
cdef inline Py_ssize_t _size_of(int64_t value) noexcept
@cython.locals(rest=uint64_t)
cdef inline Py_ssize_t _write_number(Memory target, Py_ssize_t position, int64_t value) noexcept
cdef inline Py_ssize_t _size_of_field(Py_ssize_t size) noexcept


@cython.final
cdef class StringColumn:
    cdef bint has_offsets
    cdef bint is_wide
    cdef bint has_nulls
    cdef Bytes validity
    cdef Int32s narrow
    cdef Int64s wide
    cdef Bytes data
    cdef Py_ssize_t first


@cython.final
cdef class NumberColumn:
    cdef bint exists
    cdef bint has_nulls
    cdef Bytes validity
    cdef Int32s int32s
    cdef Int64s int64s
    cdef Py_ssize_t first


cdef inline bint _has_number(NumberColumn column, Py_ssize_t row) noexcept
cdef inline bint _is_set(Bytes bits, Py_ssize_t index) noexcept
cdef inline Py_ssize_t _start_of(StringColumn column, Py_ssize_t row) noexcept
cdef inline Py_ssize_t _size_at(StringColumn column, Py_ssize_t row) noexcept
@cython.locals(fits=bint, row=Py_ssize_t)
cdef int _check_ascent(StringColumn column, Py_ssize_t start, Py_ssize_t end, Py_ssize_t limit) except -1
cdef inline Py_ssize_t _write_field(
    Memory target, Py_ssize_t position, Bytes data, Py_ssize_t start, Py_ssize_t size
) noexcept
@cython.locals(size=Py_ssize_t, start=Py_ssize_t)
cdef inline Py_ssize_t _write_row(
    Memory target, Py_ssize_t position, StringColumn column, Py_ssize_t row
) noexcept


@cython.final
cdef class Rows:
    cdef readonly object largest
    cdef readonly object earliest
    cdef Py_ssize_t count
    cdef Py_ssize_t size
    cdef list views
    cdef StringColumn keys
    cdef StringColumn values
    cdef bint has_headers
    cdef StringColumn lists
    cdef StringColumn names
    cdef StringColumn header_values
    cdef NumberColumn partitions
    cdef NumberColumn timestamps

    cdef BufferView _hold(self, object buffer)
    @cython.locals(view=BufferView)
    cdef Bytes _bits(self, object buffer, Py_ssize_t last) except NULL
    @cython.locals(view=BufferView)
    cdef Bytes _numbers(self, object buffer, Py_ssize_t last, Py_ssize_t width) except NULL
    @cython.locals(column=StringColumn, numbers=Bytes)
    cdef StringColumn _offsets_of(
        self, object validity, object offsets, Py_ssize_t first, bint is_wide, Py_ssize_t count
    )
    @cython.locals(column=StringColumn, view=BufferView)
    cdef StringColumn _strings_of(self, object buffers, Py_ssize_t start, Py_ssize_t end)
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t)
    cdef int _take_headers(self, object headers) except -1
    @cython.locals(row=Py_ssize_t, index=Py_ssize_t)
    cdef int _check_names(self) except -1
    @cython.locals(column=NumberColumn, last=Py_ssize_t)
    cdef NumberColumn _numbers_of(self, object buffers, Py_ssize_t width)
    @cython.locals(timestamps=NumberColumn, row=Py_ssize_t, earliest=int64_t)
    cdef int _find_earliest(self) except -1
    @cython.locals(largest=Py_ssize_t, keys=StringColumn, values=StringColumn, row=Py_ssize_t, size=Py_ssize_t)
    cdef int _measure(self) except -1
    @cython.locals(values=StringColumn, start=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, index=Py_ssize_t)
    cdef Py_ssize_t _most_header_bytes(self, Py_ssize_t row) noexcept


@cython.locals(start=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, index=Py_ssize_t)
cdef Py_ssize_t _size_of_headers(StringColumn lists, StringColumn names, StringColumn values, Py_ssize_t row) noexcept
@cython.locals(start=Py_ssize_t, end=Py_ssize_t, index=Py_ssize_t)
cdef void _write_headers(
    Memory target, Py_ssize_t position, StringColumn lists, StringColumn names, StringColumn values,
    Py_ssize_t row
) noexcept


ctypedef struct OpenBatch:
    Memory target
    Py_ssize_t used
    Py_ssize_t capacity
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count

ctypedef OpenBatch* OpenPointer


@cython.final
cdef class RowEncoder:
    cdef int32_t partitions
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t room
    cdef int64_t now_ms
    cdef int32_t sticky
    cdef list after
    cdef OpenPointer opened
    cdef list contents
    cdef Rows rows
    cdef Py_ssize_t row
    cdef Py_ssize_t waiting
    cdef Py_ssize_t likely

    cpdef take(self, Rows rows)
    @cython.locals(
        rows=Rows, keys=StringColumn, values=StringColumn, lists=StringColumn, names=StringColumn,
        header_values=StringColumn, partitions=NumberColumn, timestamps=NumberColumn, row=Py_ssize_t, key_size=Py_ssize_t, key_start=Py_ssize_t, value_size=Py_ssize_t,
        value_start=Py_ssize_t, partition=int32_t, hashed=uint32_t, timestamp=int64_t, batch=OpenPointer, delta=int64_t,
        body=Py_ssize_t, size=Py_ssize_t, target=Memory, position=Py_ssize_t
    )
    cpdef list encode(self)
    @cython.locals(partition=int32_t)
    cpdef list finish(self)
    @cython.locals(capacity=Py_ssize_t)
    cdef int _begin(self, int32_t partition, Py_ssize_t size, int64_t timestamp) except -1
    @cython.locals(capacity=Py_ssize_t)
    cdef int _grow(self, int32_t partition, Py_ssize_t size) except -1
    cdef int _resize(self, int32_t partition, bytearray content, Py_ssize_t capacity) except -1
    @cython.locals(batch=OpenPointer, content=bytearray)
    cdef tuple _close(self, int32_t partition)
