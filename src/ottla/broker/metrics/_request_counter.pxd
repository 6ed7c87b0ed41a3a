# The C types of `_request_counter.py`.
cimport cython
from libc.stdint cimport int64_t

cdef str _USAGE
cdef str _REPLICA
cdef int _PRODUCE
cdef int _FETCH
cdef int _FOLLOWER_FETCH


cdef class Traffic:
    cdef public int64_t produced_bytes
    cdef public int64_t fetched_bytes
    cdef public int64_t request_ns


@cython.final
cdef class RequestCounter:
    cdef list _counts
    cdef int64_t _exact
    cdef Traffic _replicas
    cdef object _bind
    cdef object _follow

    @cython.locals(state=dict, usage=Traffic, number=int64_t, shift=int)
    cpdef int64_t due(self, object connection, int key, object client_id, int64_t frame_bytes) except -1
    @cython.locals(state=dict, usage=Traffic, size=int64_t)
    cpdef int fetched(self, object connection, object response) except -1
