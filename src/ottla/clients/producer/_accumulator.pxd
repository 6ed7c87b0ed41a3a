# The types of `accumulator` where it is compiled, as `_accumulator`.
cimport cython


cdef class Batch:
    cdef public object queue
    cdef public long long ordinal
    cdef public double linger_until_ms
    cdef public double deadline_ms
    cdef public bytearray out
    cdef public object wire
    cdef public Py_ssize_t count
    cdef public Py_ssize_t size
    cdef public long long base_timestamp
    cdef public long long max_timestamp
    cdef public long long attempts
    cdef public long long producer_id
    cdef public long long epoch
    cdef public long long sequence
    cdef public double unsure_until_ms
    cdef public bint urgent
    cdef public bint done
    cdef public bint announced
    cdef public bint looked_at
    cdef public object error
    cdef public dict record_errors
    cdef public long long base_offset
    cdef public long long log_append_time_ms
    cdef public list callbacks
    cdef public list waiters
    cdef public list pieces
    cdef public Batch whole

    cpdef object error_of(self, object index)
    cpdef object wake(self)


# Not tracked by the collector: what a future refers to refers to it only until its batch is announced.
@cython.no_gc
cdef class Delivery:
    cdef readonly Batch _batch
    cdef readonly Py_ssize_t _index
    cdef readonly long long _timestamp

    @cython.locals(batch=Batch, index=Py_ssize_t)
    cpdef object peek(self)
    cpdef bint done(self)
    @cython.locals(batch=Batch)
    cpdef Batch _pending(self)


@cython.no_gc
cdef class BlockingDelivery(Delivery):
    pass


cdef class Queue:
    cdef readonly str topic
    cdef readonly object partition
    cdef readonly object owner
    cdef public Batch open

    cpdef object close_open(self)


cdef class TopicQueues:
    cdef public object random
    cdef public object choose
    cdef public list queues
    cdef public list available
    cdef public Queue sticky
    cdef public object topic_id

    cpdef Queue queue_for(self, object partition, object key)
    cpdef object next_sticky(self)


cdef class Accumulator:
    cdef public Py_ssize_t batch_size
    cdef public Py_ssize_t room
    cdef public Py_ssize_t used
    cdef public dict known

    @cython.locals(queues=TopicQueues, delivery=Delivery, size=Py_ssize_t, queue=Queue, batch=Batch)
    cpdef object try_append(self, object topic, object partition, object key, object value, object headers, long long timestamp_ms, object make, object callback)

    cpdef bint has_room(self, Batch batch, Py_ssize_t size)

    @cython.locals(added=Py_ssize_t)
    cpdef object put(self, Batch batch, Delivery delivery, object key, object value, object headers, long long timestamp_ms)


cdef class Front:
    cdef public Accumulator _accumulator
    cdef public object _clock
    cdef public bint _is_direct


@cython.locals(size=Py_ssize_t)
cpdef Py_ssize_t bound(object key, object value, object headers)
