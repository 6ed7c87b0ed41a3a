# The types of `_encode_columns.py`.
from libc.stdint cimport int32_t, int64_t, uint8_t


# A column of byte strings. Of the two kinds of offsets one is there; without either, every row is null.
ctypedef struct Strings:
    const uint8_t* validity  # NULL if no row is null
    const int32_t* narrow
    const int64_t* wide
    const uint8_t* data
    Py_ssize_t data_size
    Py_ssize_t first  # where in the buffers row 0 is


# A batch that rows are added to; without room there is none.
ctypedef struct Open:
    uint8_t* room
    Py_ssize_t used
    Py_ssize_t capacity
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count


cdef class Rows:
    cdef Py_buffer views[18]  # three for each column of strings, two for any other
    cdef int held
    cdef Py_ssize_t count
    cdef Py_ssize_t first_partition
    cdef Py_ssize_t first_timestamp
    cdef Py_ssize_t size
    cdef Strings keys
    cdef Strings values
    cdef const uint8_t* partition_validity
    cdef const int32_t* partitions
    cdef const uint8_t* timestamp_validity
    cdef const int64_t* timestamps
    cdef bint has_headers
    cdef Strings lists  # offsets into the two that follow, no data of their own
    cdef Strings names
    cdef Strings header_values
    cdef readonly object largest
    cdef readonly object earliest
    cdef Py_buffer* hold(self, object buffer) except *
    cdef const uint8_t* bits(self, object buffer, Py_ssize_t last) except *
    cdef void* numbers(self, object buffer, Py_ssize_t last, Py_ssize_t width) except *
    cdef int offsets_of(
        self, Strings* column, object validity, object offsets, Py_ssize_t first, object wide, Py_ssize_t count
    ) except? -1
    cdef int strings_of(self, Strings* column, object buffers, Py_ssize_t start, Py_ssize_t end) except? -1
    cdef int take_headers(self, object headers) except? -1
    cdef int measure(self, object partitions, object timestamps) except? -1


cdef class RowEncoder:
    cdef Open* opened
    cdef list bodies
    cdef int32_t partitions
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t room
    cdef int64_t now_ms
    cdef int32_t sticky
    cdef list after  # partition by partition, where rows that name none go next
    cdef Rows rows
    cdef Py_ssize_t row
    cdef Py_ssize_t waiting
    cdef Py_ssize_t likely
    cdef int begin(self, int32_t partition, Py_ssize_t size) except? -1
    cdef int grow(self, int32_t partition, Py_ssize_t size) except? -1
    cdef object close(self, int32_t partition)
