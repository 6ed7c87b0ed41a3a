# mypy: ignore-errors
# ruff: noqa: F821
# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The survey of a segment for Cython's pure-Python mode: the promises of `_survey_fallback`, in C.

It holds the GIL for one piece of a segment at a time. CRCs of small batches are computed here, those of large ones by
the library, which is quicker then.
"""

from array import array

import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.libc.stdint import int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.ottla.records._castagnoli import ottla_computes_crc, ottla_crc32c

from ottla.records.checksum import crc32c

COMPILED = True

_MORE = cython.declare(cython.int, 0)
_LOOK = cython.declare(cython.int, 1)
_FRAME = cython.declare(cython.int, 2)
_CRC = cython.declare(cython.int, 3)
_OFFSET = cython.declare(cython.int, 4)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 61)
_LOG_OVERHEAD = cython.declare(cython.Py_ssize_t, 12)
_CRC_START = cython.declare(cython.Py_ssize_t, 21)
_SMALL = cython.declare(cython.Py_ssize_t, 2048)
_KEPT_BATCHES = cython.declare(cython.int, 5)
_INT32_MAX = cython.declare(int64_t, 0x7FFFFFFF)

_Bytes = cython.typedef(cython.pointer(cython.const[uint8_t]))
_Numbers = cython.typedef(cython.pointer(int64_t))

_computes_crc = cython.declare(cython.bint, ottla_computes_crc())


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read32(data: _Bytes) -> int32_t:
    return cython.cast(
        int32_t,
        cython.cast(uint32_t, data[0]) << 24
        | cython.cast(uint32_t, data[1]) << 16
        | cython.cast(uint32_t, data[2]) << 8
        | cython.cast(uint32_t, data[3]),
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read64(data: _Bytes) -> int64_t:
    high: uint64_t = cython.cast(uint32_t, _read32(data))
    low: uint64_t = cython.cast(uint32_t, _read32(data + 4))
    return cython.cast(int64_t, high << 32 | low)


@cython.cclass
class _Column:
    """A row of numbers that grows."""

    numbers: _Numbers
    used: cython.Py_ssize_t
    room: cython.Py_ssize_t

    def __dealloc__(self):
        free(self.numbers)

    @cython.cfunc
    def append(self, number: int64_t) -> cython.int:
        if self.used == self.room:
            room: cython.Py_ssize_t = 2 * self.room + 64
            grown: cython.p_void = realloc(self.numbers, room * cython.sizeof(int64_t))
            if grown == cython.NULL:
                raise MemoryError(room)
            self.numbers = cython.cast(_Numbers, grown)
            self.room = room
        self.numbers[self.used] = number
        self.used += 1
        return 0

    @cython.cfunc
    def take(self) -> object:
        data: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, self.numbers), self.used * cython.sizeof(int64_t)
        )
        self.used = 0
        return array("q", data)


@cython.cclass
class Survey:
    """See `_survey_fallback`."""

    base_offset = cython.declare(int64_t, visibility="readonly")
    good = cython.declare(int64_t, visibility="readonly")
    expected = cython.declare(int64_t, visibility="readonly")
    gaps = cython.declare(cython.bint, visibility="readonly")
    known_to = cython.declare(int64_t, visibility="public")
    epoch = cython.declare(int64_t, visibility="public")
    needed = cython.declare(int64_t, visibility="readonly")
    looked_at = cython.declare(int64_t, visibility="public")
    first_timestamp = cython.declare(int64_t, visibility="public")
    max_timestamp = cython.declare(int64_t, visibility="public")
    max_offset = cython.declare(int64_t, visibility="public")
    unindexed = cython.declare(int64_t, visibility="public")
    index_interval = cython.declare(int64_t, visibility="public")
    last_time = cython.declare(int64_t, visibility="public")
    _offsets: _Column
    _positions: _Column
    _times: _Column
    _time_offsets: _Column
    _producers: dict
    # The rings of the producers by their number in `_producers`, and how many batches each has seen.
    _rings: _Column
    _last_producer: int64_t
    _last_ring: cython.Py_ssize_t

    def __init__(
        self, base_offset: int64_t, good: int64_t, expected: int64_t, gaps: cython.bint, known_to: int64_t,
        epoch: int64_t,
    ) -> None:  # fmt: skip
        self.base_offset = base_offset
        self.good = good
        self.expected = expected
        self.gaps = gaps
        self.known_to = known_to
        self.epoch = epoch
        self.needed = _HEADER_SIZE
        self.looked_at = -1
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_offset = base_offset
        self.unindexed = 0
        self.index_interval = 4096
        self.last_time = -1
        self._offsets = _Column()
        self._positions = _Column()
        self._times = _Column()
        self._time_offsets = _Column()
        self._rings = _Column()
        self._producers = {}
        self._last_producer = -1

    def go_on(self, data: object, place: int64_t) -> int:
        """Go over the batches in `data`; why it stopped."""
        view: Py_buffer
        PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
        try:
            return self._go_on(memoryview(data), cython.cast(_Bytes, view.buf), view.len, self.good - place)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _go_on(self, whole: object, start: _Bytes, end: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.int:
        batch: _Bytes
        size: cython.Py_ssize_t
        base: int64_t
        last: int64_t
        producer: int64_t
        crc: uint32_t
        attributes: int16_t
        special: cython.bint
        if at < 0 or at > end:
            raise IndexError(at)
        while True:
            self.needed = _HEADER_SIZE
            if end - at < _HEADER_SIZE:
                return _MORE
            batch = start + at
            size = _read32(batch + 8)
            size += _LOG_OVERHEAD
            if batch[16] != 2 or size < _HEADER_SIZE:
                return _FRAME
            self.needed = size
            if end - at < size:
                return _MORE
            crc = cython.cast(uint32_t, _read32(batch + 17))
            if _computes_crc and size < _SMALL:
                if ottla_crc32c(batch + _CRC_START, size - _CRC_START) != crc:
                    return _CRC
            elif crc != cython.cast(uint32_t, crc32c(whole[at + _CRC_START : at + size])):
                return _CRC
            base = _read64(batch)
            last = cython.cast(
                int64_t, cython.cast(uint64_t, base) + cython.cast(uint64_t, cython.cast(int64_t, _read32(batch + 23)))
            )
            if base < self.expected or last < base or last - self.base_offset > _INT32_MAX:
                return _OFFSET
            if base != self.expected and not self.gaps:
                return _OFFSET
            if self.looked_at != self.good:
                producer = _read64(batch + 43)
                attributes = cython.cast(
                    int16_t, cython.cast(uint16_t, batch[21]) << 8 | cython.cast(uint16_t, batch[22])
                )
                special = (attributes & 0x30) != 0 and producer >= 0 and base >= self.known_to
                if special or _read32(batch + 12) > self.epoch:
                    return _LOOK
                if producer >= 0 and base >= self.known_to:
                    self._keep(producer, at)
            self._note(last, _read64(batch + 35), size)
            at += size

    @cython.cfunc
    def _keep(self, producer: int64_t, at: cython.Py_ssize_t) -> cython.int:
        """The place of a producer's batch goes into its ring: how many it has seen, and the places of five of them."""
        ring: cython.Py_ssize_t
        number: object
        seen: int64_t
        _: cython.int
        if producer != self._last_producer:
            number = self._producers.get(producer)
            if number is None:
                number = self._rings.used
                self._producers[producer] = number
                for _ in range(_KEPT_BATCHES + 1):
                    self._rings.append(0)
            self._last_producer = producer
            self._last_ring = number
        ring = self._last_ring
        seen = self._rings.numbers[ring]
        self._rings.numbers[ring + 1 + seen % _KEPT_BATCHES] = at
        self._rings.numbers[ring] = seen + 1
        return 0

    @cython.cfunc
    def _note(self, last: int64_t, timestamp: int64_t, size: cython.Py_ssize_t) -> cython.int:
        if self.good == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_offset = last
        if self.unindexed > self.index_interval:
            self._offsets.append(last - self.base_offset)
            self._positions.append(self.good)
            if self.max_timestamp > self.last_time:
                self.last_time = self.max_timestamp
                self._times.append(self.max_timestamp)
                self._time_offsets.append(self.max_offset - self.base_offset)
            self.unindexed = 0
        self.unindexed += size
        self.good += size
        self.expected = last + 1
        return 0

    def take_entries(self) -> tuple:
        """New entries of both indices."""
        return self._offsets.take(), self._positions.take(), self._times.take(), self._time_offsets.take()

    def take_producers(self) -> list:
        """Where the last batches of producers are."""
        places: list = []
        ring: cython.Py_ssize_t
        seen: int64_t
        i: int64_t
        for number in self._producers.values():
            ring = number
            seen = self._rings.numbers[ring]
            i = seen - _KEPT_BATCHES if seen > _KEPT_BATCHES else 0
            while i < seen:
                places.append(self._rings.numbers[ring + 1 + i % _KEPT_BATCHES])
                i += 1
        self._producers = {}
        self._rings.used = 0
        self._last_producer = -1
        return places
