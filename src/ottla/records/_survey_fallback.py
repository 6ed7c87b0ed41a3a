"""The survey of a segment in plain Python: the same promises as the compiled one (`survey` chooses).

A `Survey` goes over the batches of a segment, piece by piece, and checks that each is whole, that its CRC is right and
that its offset follows. Meanwhile it collects what the segment's indices hold. It stops at what it does not do itself:
a batch with a new leader epoch, or of a transaction. Of the batches of idempotent producers it keeps where each one's
last five are.
"""

from array import array
from struct import Struct

from ottla.records.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    Buffer,
)
from ottla.records.checksum import crc32c

COMPILED = False

MORE, LOOK, FRAME, CRC, OFFSET = range(5)
KEPT_BATCHES = 5
_FIELDS = Struct(">qiibIhi8xqq")  # a header without what is not needed here
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_INT32_MAX = 0x7FFFFFFF


class Survey:
    """How far it is, and what it has found; see the module's docstring.

    `good` is the position in the file after the last good batch, `expected` the offset that the next one must have (at
    least, with `gaps`). Batches below `known_to` are not collected for their producers. `epoch` is the newest leader
    epoch; whoever takes in a newer one sets it. The rest is as `Segment` has it, for its indices.
    """

    __slots__ = (
        "_entries", "_recent", "_times", "base_offset", "epoch", "expected", "first_timestamp", "gaps", "good",
        "index_interval", "known_to", "last_time", "looked_at", "max_offset", "max_timestamp", "needed", "unindexed",
    )  # fmt: skip

    def __init__(self, base_offset: int, good: int, expected: int, gaps: bool, known_to: int, epoch: int) -> None:
        self.base_offset = base_offset
        self.good = good
        self.expected = expected
        self.gaps = gaps
        self.known_to = known_to
        self.epoch = epoch
        self.needed = HEADER_SIZE
        self.looked_at = -1
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_offset = base_offset
        self.unindexed = 0
        self.index_interval = 4096
        self.last_time = -1
        self._entries: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []
        self._recent: dict[int, list[int]] = {}

    def go_on(self, data: Buffer, place: int) -> int:
        """Go over the batches in `data`, which begins at `place` in the file, from `good` on; why it stopped.

        MORE: what is left is no whole batch, which takes `needed` bytes (as far as can be seen). LOOK: the next batch
        is good, and to be looked at by the caller, who then sets `looked_at` to its position. Else what is wrong with
        the next batch: FRAME (size or magic), CRC, OFFSET.
        """
        view = memoryview(data)
        end = len(view)
        at = self.good - place
        while True:
            self.needed = HEADER_SIZE
            if end - at < HEADER_SIZE:
                return MORE
            base, length, epoch, magic, crc, attributes, delta, timestamp, producer = _FIELDS.unpack_from(view, at)
            if magic != MAGIC or length < _MIN_LENGTH:
                return FRAME
            size = self.needed = length + LOG_OVERHEAD
            if end - at < size:
                return MORE
            if crc != crc32c(view[at + CRC_START : at + size]):
                return CRC
            last = base + delta
            if base < self.expected or last < base or last - self.base_offset > _INT32_MAX:
                return OFFSET
            if base != self.expected and not self.gaps:
                return OFFSET
            if self.looked_at != self.good:
                special = attributes & (TRANSACTIONAL | CONTROL) and producer >= 0 and base >= self.known_to
                if special or epoch > self.epoch:
                    return LOOK
                if producer >= 0 and base >= self.known_to:
                    places = self._recent.setdefault(producer, [])
                    if len(places) == KEPT_BATCHES:
                        del places[0]
                    places.append(at)
            self._note(last, timestamp, size)
            at += size

    def _note(self, last: int, timestamp: int, size: int) -> None:
        if not self.good:
            self.first_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_offset = last
        if self.unindexed > self.index_interval:
            self._entries.append((last - self.base_offset, self.good))
            if self.max_timestamp > self.last_time:
                self.last_time = self.max_timestamp
                self._times.append((self.max_timestamp, self.max_offset - self.base_offset))
            self.unindexed = 0
        self.unindexed += size
        self.good += size
        self.expected = last + 1

    def take_entries(self) -> "tuple[array[int], array[int], array[int], array[int]]":
        """New entries of the offset index (relative offsets, positions) and the time index (timestamps, offsets)."""
        entries, times = self._entries, self._times
        self._entries, self._times = [], []
        return (
            array("q", (offset for offset, _ in entries)),
            array("q", (position for _, position in entries)),
            array("q", (timestamp for timestamp, _ in times)),
            array("q", (offset for _, offset in times)),
        )

    def take_producers(self) -> list[int]:
        """Where in the data of the last `go_on` the last batches of producers are, each producer's in order."""
        places = [place for row in self._recent.values() for place in row]
        self._recent = {}
        return places
