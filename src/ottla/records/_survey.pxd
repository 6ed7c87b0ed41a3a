# The C types of `_survey.py`.
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, realloc

from ottla.records._castagnoli cimport ottla_computes_crc, ottla_crc32c
from ottla.records._record_reader cimport BufferView, Bytes, int32_of, read_int64, read_uint32, view_of, wrap64

ctypedef int64_t* Int64s

cdef int _MORE
cdef int _LOOK
cdef int _FRAME
cdef int _CRC
cdef int _OFFSET
cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LOG_OVERHEAD
cdef Py_ssize_t _CRC_START
cdef Py_ssize_t _LARGEST_OWN_CRC
cdef int _RING_SIZE
cdef int64_t _INT32_MAX
cdef int _TRANSACTIONAL_OR_CONTROL
cdef bint _COMPUTES_CRC


@cython.final
cdef class Int64Column:
    cdef Int64s numbers
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    cdef int append(self, int64_t number) except -1
    @cython.locals(grown=Int64s)
    cdef int _grow(self) except -1
    cdef object take(self)


@cython.final
cdef class IndexEntries:
    cdef Int64Column offsets
    cdef Int64Column positions
    cdef Int64Column times
    cdef Int64Column time_offsets
    cdef int64_t last_time


@cython.final
cdef class ProducerRings:
    cdef dict rings
    cdef Int64Column slots
    cdef int64_t last_producer
    cdef Py_ssize_t last_ring

    @cython.locals(ring=Py_ssize_t, seen=int64_t, _=int)
    cdef int add(self, int64_t producer, Py_ssize_t at) except -1
    @cython.locals(ring=Py_ssize_t, seen=int64_t, i=int64_t)
    cdef list take(self)


@cython.final
cdef class Survey:
    cdef readonly int64_t base_offset
    cdef readonly int64_t good
    cdef readonly int64_t expected
    cdef readonly int64_t end_offset
    cdef public int64_t known_to
    cdef public int64_t epoch
    cdef readonly int64_t needed
    cdef public int64_t looked_at
    cdef public int64_t first_timestamp
    cdef public int64_t max_timestamp
    cdef public int64_t max_offset
    cdef public int64_t unindexed
    cdef public int64_t index_interval
    cdef IndexEntries _entries
    cdef ProducerRings _producers

    @cython.locals(view=BufferView)
    cpdef int go_on(self, object data, int64_t start) except -1
    @cython.locals(
        size=Py_ssize_t, base=int64_t, last=int64_t, producer=int64_t, is_collected=bint, special=bint
    )
    cdef int _check_batches(self, object whole, Bytes data, Py_ssize_t end, Py_ssize_t at) except -1
    cdef bint _crc_is(self, object whole, Bytes data, Py_ssize_t at, Py_ssize_t size, uint32_t crc) except -1
    @cython.locals(entries=IndexEntries)
    cdef int _advance(self, int64_t last, int64_t timestamp, Py_ssize_t size) except -1
    @cython.locals(entries=IndexEntries)
    cpdef tuple take_entries(self)
    cpdef list take_producers(self)
