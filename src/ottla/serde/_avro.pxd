# The types of `_avro.py` in compiled code.
cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from ottla.serde._builders cimport (
    BinaryBuilder, BoolBuilder, Builder, DecimalBuilder, FloatBuilder, IntBuilder, ListBuilder, MapBuilder, StructBuilder,
)
from ottla.serde._views cimport ByteRows, Bytes, Held, is_utf8

cdef int INT, LONG, INT_FLOAT, LONG_FLOAT, ENUM, CHOICE, SKIP_NUMBER, BOOL, FLOAT
cdef int DOUBLE, TEXT, BYTES, FIXED, FIXED_DECIMAL, SKIP_FIXED, RECORD, MAP, MEMBER
cdef int CONSTANT, NOTHING, REFUSED, CUT, LONG_NUMBER, RANGE, LENGTH, SYMBOL, BRANCH
cdef int UTF8, DIGITS, ITEMS, UNRESOLVED, HEADER, NO_BOOL, DEPTH, REST
cdef int CHECK_INT, CHECK_ENUM, CHECK_TEXT, CHECK_BOOL, NESTED
cdef int MOST_NESTED
cdef int64_t MOST_EMPTY_ITEMS


cdef class Step:
    cdef readonly int op
    cdef readonly str path
    cdef public list steps
    cdef public Py_ssize_t count
    cdef public Py_ssize_t least
    cdef public Py_ssize_t size
    cdef public int64_t factor
    cdef public list symbols
    cdef public Held constant
    cdef Builder builder


@cython.final
cdef class Reader:
    cdef Bytes data
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef int64_t number
    cdef int64_t empty_items
    cdef int depth
    cdef readonly Step failed
    cdef readonly int reason

    cdef bint _fail(self, Step step, int reason)
    @cython.locals(at=Py_ssize_t, shift=int, value=uint64_t, part=uint64_t)
    cdef bint _number(self, Step step)
    @cython.locals(single=float)
    cdef double _float(self)
    @cython.locals(double=double)
    cdef double _double(self)
    @cython.locals(i=Py_ssize_t)
    cdef int read(self, Step step) except -1
    @cython.locals(i=Py_ssize_t, child=Builder)
    cdef int _read_around(self, Step step) except -1
    @cython.locals(fits=int)
    cdef int _read_nested(self, Step step) except -1
    cdef int _read_fixed_width(self, Step step) except -1
    @cython.locals(symbol=Held)
    cdef int _read_number(self, Step step) except -1
    @cython.locals(size=Py_ssize_t)
    cdef int _read_bytes(self, Step step) except -1
    @cython.locals(data=Bytes, at=Py_ssize_t, end=Py_ssize_t, fits=int)
    cdef int _read_constant(self, Step step) except -1
    @cython.locals(count=int64_t)
    cdef bint _count(self, Step step)
    @cython.locals(items=Step, keys=Step, count=int64_t, i=int64_t, is_map=bint)
    cdef int _read_blocks(self, Step step) except -1


@cython.locals(row=Py_ssize_t, reader=Reader, header=Step, fits=int)
cdef list _decode(Step step, Builder builder, ByteRows rows, Py_ssize_t skip, bint only_first)

@cython.locals(row=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, count=Py_ssize_t, reader=Reader, fits=int)
cdef list _check(Step step, Held data, Held places, int64_t schema_id, object rows, Py_ssize_t skip)
