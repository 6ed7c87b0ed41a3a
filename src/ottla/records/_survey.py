# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Checks the batches of a segment after an unclean shutdown, and collects its index entries.

One source for C and Python: Cython compiles this file with the types of `_survey.pxd`. `survey` exports it. It is
separate from the other kernels, because a broker needs it only after an unclean shutdown.

A `Survey` reads a segment in pieces. It checks that each batch is complete, that its CRC is valid and that offsets
rise. It stops at a batch that the caller must handle: a batch with a new leader epoch, or a batch
of a transaction. For each idempotent producer it collects the positions of the last five batches.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.records.checksum import crc32c

if not cython.compiled:
    from ottla.records._record_reader import int32_of, read_int64, read_uint32, view_of
    from ottla.records.batch import wrap64

    Bytes: TypeAlias = memoryview
    Buffer: TypeAlias = bytes | bytearray | memoryview


# Why a survey stopped.
MORE, LOOK, FRAME, CRC, OFFSET = range(5)
_MORE, _LOOK, _FRAME, _CRC, _OFFSET = range(5)

_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_CRC_START = 21
# The library computes the CRC of larger batches faster.
_LARGEST_OWN_CRC = 2048
# The number of positions per producer.
_RING_SIZE = 5
_INT32_MAX = 0x7FFFFFFF
_TRANSACTIONAL_OR_CONTROL = 0x30
if cython.compiled:
    _COMPUTES_CRC = ottla_computes_crc()
else:
    _COMPUTES_CRC = False


class Int64Column:
    """Integers of 64 bits; in compiled code, a growing C array."""

    numbers: list[int]
    used: int
    capacity: int

    def __init__(self) -> None:
        self.used = 0
        if not cython.compiled:
            self.numbers = []

    def __dealloc__(self) -> None:
        if cython.compiled:
            free(self.numbers)

    def append(self, number: int) -> None:
        if cython.compiled:
            if self.used == self.capacity:
                self._grow()
            self.numbers[self.used] = number
        else:
            self.numbers.append(number)
        self.used += 1

    def _grow(self) -> None:
        if cython.compiled:
            self.capacity = 2 * self.capacity + 64
            grown = cython.cast(Int64s, realloc(self.numbers, self.capacity * cython.sizeof(int64_t)))
            if grown == cython.NULL:
                raise MemoryError
            self.numbers = grown

    def take(self) -> array[int]:
        """Return the integers and empty the column."""
        if cython.compiled:
            size = self.used * cython.sizeof(int64_t)
            taken = array("q", PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.numbers), size))
        else:
            taken = array("q", self.numbers)
            self.numbers = []
        self.used = 0
        return taken


class IndexEntries:
    """New entries of the offset index (relative offsets, positions) and of the time index (timestamps, offsets)."""

    offsets: Int64Column
    positions: Int64Column
    times: Int64Column
    time_offsets: Int64Column
    last_time: int

    def __init__(self) -> None:
        self.last_time = -1
        self.offsets = Int64Column()
        self.positions = Int64Column()
        self.times = Int64Column()
        self.time_offsets = Int64Column()


class ProducerRings:
    """The positions of the last five batches of each producer."""

    # By producer id, the start of its ring in `slots`: the number of its batches, then five positions.
    rings: dict[int, int]
    slots: Int64Column
    last_producer: int
    last_ring: int

    def __init__(self) -> None:
        self.rings = {}
        self.slots = Int64Column()
        self.last_producer = -1

    def add(self, producer: int, at: int) -> None:
        """Add the position of a producer's batch to its ring; a full ring loses its oldest position."""
        if producer != self.last_producer:
            known = self.rings.get(producer)
            if known is None:
                known = self.slots.used
                self.rings[producer] = known
                for _ in range(_RING_SIZE + 1):
                    self.slots.append(0)
            self.last_producer = producer
            self.last_ring = known
        ring = self.last_ring
        seen = self.slots.numbers[ring]
        self.slots.numbers[ring + 1 + seen % _RING_SIZE] = at
        self.slots.numbers[ring] = seen + 1

    def take(self) -> list[int]:
        """Return the positions of each producer's batches, in order, and forget them."""
        positions = []
        for known in self.rings.values():
            ring = known
            seen = self.slots.numbers[ring]
            i = max(0, seen - _RING_SIZE)
            while i < seen:
                positions.append(self.slots.numbers[ring + 1 + i % _RING_SIZE])
                i += 1
        self.rings = {}
        self.slots = Int64Column()
        self.last_producer = -1
        return positions


class Survey:
    """The progress and the results of checking a segment.

    `good` is the file position after the last valid batch. `expected` is the smallest offset of the next batch, and all
    batches end at or below `end_offset`. Producers of batches below `known_to` are not collected. `epoch` is the newest
    leader epoch; the caller updates it. The other fields serve the indices and are as in `Segment`.
    """

    base_offset: int
    good: int
    expected: int
    end_offset: int
    known_to: int
    epoch: int
    needed: int
    looked_at: int
    first_timestamp: int
    max_timestamp: int
    max_offset: int
    unindexed: int
    index_interval: int
    _entries: IndexEntries
    _producers: ProducerRings

    def __init__(self, base_offset: int, good: int, expected: int, end_offset: int, known_to: int, epoch: int) -> None:
        self.base_offset = base_offset
        self.good = good
        self.expected = expected
        self.end_offset = end_offset
        self.known_to = known_to
        self.epoch = epoch
        self.needed = _HEADER_SIZE
        self.looked_at = -1
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_offset = base_offset
        self.unindexed = 0
        self.index_interval = 4096
        self._entries = IndexEntries()
        self._producers = ProducerRings()

    @property
    def last_time(self) -> int:
        """The newest timestamp in the time index; the caller sets its value before the survey."""
        return self._entries.last_time

    @last_time.setter
    def last_time(self, timestamp: int) -> None:
        self._entries.last_time = timestamp

    def go_on(self, data: Buffer, start: int) -> int:
        """Check the batches in `data`, which starts at file position `start`, from `good` on; return why it stopped.

        - MORE: the rest is not a complete batch; the next call needs at least `needed` bytes from `good` on.
        - LOOK: the next batch is valid; the caller must handle it and then set `looked_at` to its position.
        - FRAME, CRC, OFFSET: the next batch has a wrong size or magic, a wrong CRC or a wrong offset.
        """
        view = view_of(data)
        return self._check_batches(memoryview(data), view.data, view.size, self.good - start)

    def _check_batches(self, whole: memoryview, data: Bytes, end: int, at: int) -> int:
        if at < 0 or at > end:
            raise IndexError(at)
        while True:
            self.needed = _HEADER_SIZE
            if end - at < _HEADER_SIZE:
                return _MORE
            size = int32_of(read_uint32(data, at + 8))
            size += _LOG_OVERHEAD
            if data[at + 16] != 2 or size < _HEADER_SIZE:
                return _FRAME
            self.needed = size
            if end - at < size:
                return _MORE
            if not self._crc_is(whole, data, at, size, read_uint32(data, at + 17)):
                return _CRC
            base = read_int64(data, at)
            last = wrap64(base + int32_of(read_uint32(data, at + 23)))
            if base < self.expected or last < base or last >= self.end_offset:
                return _OFFSET
            if last - self.base_offset > _INT32_MAX:
                return _OFFSET
            if self.looked_at != self.good:
                producer = read_int64(data, at + 43)
                is_collected = producer >= 0 and base >= self.known_to
                special = is_collected and data[at + 22] & _TRANSACTIONAL_OR_CONTROL
                if special or int32_of(read_uint32(data, at + 12)) > self.epoch:
                    return _LOOK
                if is_collected:
                    self._producers.add(producer, at)
            self._advance(last, read_int64(data, at + 35), size)
            at += size

    def _crc_is(self, whole: memoryview, data: Bytes, at: int, size: int, crc: int) -> bool:
        if cython.compiled and _COMPUTES_CRC and size < _LARGEST_OWN_CRC:
            return ottla_crc32c(data + at + _CRC_START, size - _CRC_START) == crc
        return crc32c(whole[at + _CRC_START : at + size]) == crc

    def _advance(self, last: int, timestamp: int, size: int) -> None:
        """Update the state for a valid batch, as `Segment` does on append."""
        if self.good == 0:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_offset = last
        if self.unindexed > self.index_interval:
            entries = self._entries
            entries.offsets.append(last - self.base_offset)
            entries.positions.append(self.good)
            if self.max_timestamp > entries.last_time:
                entries.last_time = self.max_timestamp
                entries.times.append(self.max_timestamp)
                entries.time_offsets.append(self.max_offset - self.base_offset)
            self.unindexed = 0
        self.unindexed += size
        self.good += size
        self.expected = last + 1

    def take_entries(self) -> tuple[array[int], array[int], array[int], array[int]]:
        """Return new entries: relative offsets and positions (offset index), timestamps and offsets (time index)."""
        entries = self._entries
        return entries.offsets.take(), entries.positions.take(), entries.times.take(), entries.time_offsets.take()

    def take_producers(self) -> list[int]:
        """Return the positions of each producer's last five batches, in order, within the data of the last `go_on`."""
        return self._producers.take()
