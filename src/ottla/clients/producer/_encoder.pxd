# The C types of `_encoder.py`.
cimport cython


cdef class BatchRecords:
    cdef public object queue
    cdef public bytearray out
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef public list callbacks
    cdef public bint done
    cdef public bint announced
    cdef public bint looked_at
    cdef public object error
    cdef public dict record_errors
    cdef public long long base_offset
    cdef public long long log_append_time_ms
    cdef public list pieces

    cpdef object error_of(self, object index)


# Without garbage collection: a future refers to its batch, which refers to the future only until it is announced.
@cython.no_gc
cdef class Delivery:
    cdef readonly BatchRecords _batch
    cdef readonly Py_ssize_t _index
    cdef readonly long long _timestamp

    @cython.locals(batch=BatchRecords, index=Py_ssize_t)
    cpdef object peek(self)
    cpdef bint done(self)
    @cython.locals(batch=BatchRecords)
    cpdef BatchRecords _pending(self)


@cython.no_gc
cdef class BlockingDelivery(Delivery):
    pass


cdef class OpenQueue:
    cdef readonly str topic
    cdef readonly object partition
    cdef readonly object runtime
    cdef public BatchRecords open_batch

    cpdef object close_batch(self)


cdef class Partitions:
    cdef public object choose
    cdef public list queues
    cdef public OpenQueue sticky

    cpdef OpenQueue queue_for(self, object partition, object key)


cdef class RecordEncoder:
    cdef public Py_ssize_t batch_size
    cdef public Py_ssize_t memory_limit
    cdef public Py_ssize_t memory_used
    cdef public dict topics

    @cython.locals(partitions=Partitions, delivery=Delivery, size=Py_ssize_t, queue=OpenQueue, batch=BatchRecords)
    cpdef object try_append(self, object topic, object partition, object key, object value, object headers, long long timestamp_ms, object make, object callback)

    cpdef bint fits(self, BatchRecords batch, Py_ssize_t size)

    @cython.locals(added=Py_ssize_t)
    cpdef object append(self, BatchRecords batch, Delivery delivery, object key, object value, object headers, long long timestamp_ms)


cdef class FastSend:
    cdef public RecordEncoder _encoder
    cdef public object _clock
    cdef public bint _is_fast


@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t size_limit(object key, object value, object headers)
