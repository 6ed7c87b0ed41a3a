# The C types of `_framed_fields.py`.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t

from ottla.records._record_reader cimport (
    BufferView, Bytes, FieldsPointer, RecordFields, check_span, read_record, read_uint32, view_of
)

ctypedef int64_t* Int64s

cdef int64_t _NULL
cdef int64_t _UNFRAMED
cdef Py_ssize_t _FRAME_SIZE


@cython.locals(
    view=BufferView, fields=RecordFields, record=FieldsPointer, data=Bytes, numbers=Int64s, seen=dict, last=int64_t,
    schema_id=int64_t, position=Py_ssize_t, index=Py_ssize_t, field=Py_ssize_t, size=Py_ssize_t, out=bytearray
)
cpdef tuple find_fields(object buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t count, bint of_keys)
