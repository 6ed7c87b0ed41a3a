"""The indices of a segment, its greatest timestamp, and the positions that sequential readers request next.

The indices of an active segment are in memory; a sealed segment reads their files. An entry is believed only if the
batch that it points to agrees, because corrupt indices must not cost records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.segment_file import WALK_CHUNK, SegmentFile, TornSegmentError
from ottla.log.txn_index import TxnIndex
from ottla.records import HEADER_SIZE, read_header
from ottla.records.survey import Survey

# Interval of an index that is rebuilt because it is corrupt: Kafka's default of index.interval.bytes.
_REBUILD_INTERVAL = 4096
_HINTS = 32

logger = logging.getLogger(__name__)


class SegmentIndices:
    """Each index is created on first use: few of a log's thousands of old segments are ever read."""

    __slots__ = (
        "_file",
        "_hints",
        "_max_offset",
        "_max_timestamp",
        "_offsets",
        "_times",
        "_transactions",
        "first_timestamp",
        "unindexed",
    )

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._transactions: TxnIndex | None = None
        self._hints: dict[int, int] = {}
        self._max_timestamp: int | None = None
        self._max_offset = file.base_offset
        self.first_timestamp: int | None = None
        self.unindexed = 0

    @property
    def offsets(self) -> OffsetIndex:
        """Offsets to positions."""
        if self._offsets is None:
            self._offsets = OffsetIndex(self._file.files, self._file.path(".index"), self._file.base_offset)
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        """Timestamps to offsets."""
        if self._times is None:
            self._times = TimeIndex(self._file.files, self._file.path(".timeindex"), self._file.base_offset)
        return self._times

    @property
    def transactions(self) -> TxnIndex:
        """Aborted transactions."""
        if self._transactions is None:
            self._transactions = TxnIndex(self._file.files, self._file.path(".txnindex"))
        return self._transactions

    @property
    def max_timestamp(self) -> int | None:
        """The greatest timestamp, None if it was not looked up yet."""
        return self._max_timestamp

    # Appending

    def have_entries(self, offsets: int, times: int) -> bool:
        """Whether one of the indices is full: has as many entries as `offsets`, or as `times`."""
        return self.offsets.entries >= offsets or self.times.entries >= times

    def start(self, *, fresh: bool = False) -> None:
        """Start empty indices in memory, for appends or a recovery; with `fresh` their files are created later."""
        self.offsets.start(fresh=fresh)
        self.times.start(fresh=fresh)
        self.unindexed = 0
        self._max_timestamp = -1
        self._max_offset = self._file.base_offset

    def load(self) -> None:
        """Load the indices into memory, for appends. Raises CorruptIndexError if they must be rebuilt first."""
        for index in (self.offsets, self.times):
            if not index.in_memory:
                index.load()
        self._hints.clear()

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Add a batch of the file to the indices, in the order of the file."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        greatest = self._max_timestamp
        if greatest is None:
            greatest, _ = self.largest_timestamp()
        if max_timestamp > greatest:
            greatest = self._max_timestamp = max_timestamp
            self._max_offset = last_offset
        if self.unindexed > index_interval:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(greatest, self._max_offset)
            self.unindexed = 0
        self.unindexed += size

    def survey(
        self, position: int, expected: int, end_offset: int, *, known_to: int, epoch: int, interval: int
    ) -> Survey:
        """Create a survey that continues the indices, which are in memory; `take` returns its results to them."""
        survey = Survey(self._file.base_offset, position, expected, end_offset, known_to, epoch)
        survey.index_interval = interval
        survey.max_timestamp, survey.max_offset = self.largest_timestamp()
        survey.last_time, _ = self.times.last()
        survey.unindexed = self.unindexed
        return survey

    def take(self, survey: Survey) -> None:
        """Add the survey's entries to the indices, as `note` does for one batch."""
        offsets, positions, timestamps, time_offsets = survey.take_entries()
        self.offsets.extend(offsets, positions)
        self.times.extend(timestamps, time_offsets)
        if self.first_timestamp is None and survey.first_timestamp >= 0:
            self.first_timestamp = survey.first_timestamp
        self._max_timestamp, self._max_offset = survey.max_timestamp, survey.max_offset
        self.unindexed = survey.unindexed

    def write_out(self) -> None:
        """Index the greatest timestamp, and write all entries that are only in memory."""
        if self.times.in_memory:
            timestamp, offset = self.largest_timestamp()
            self.times.maybe_append(timestamp, offset)
        for index in (self.offsets, self.times):
            if index.in_memory:
                index.write_pending()
        self.transactions.write_pending()

    def release(self) -> None:
        """Release the memory; entries that are not written are lost."""
        self.offsets.release()
        self.times.release()

    # Looking up

    def locate(self, offset: int) -> int:
        """Return the position of the first batch that ends at `offset` or later; the size if there is none.

        Raises TornSegmentError if no batch holds `offset` and offsets do not rise up to there: a wrong base offset may
        hide the batch.
        """
        position = self._hints.get(offset)
        if position is not None:
            return position
        file = self._file
        start = self._indexed(offset)
        lowest, rises = file.base_offset, True
        for position, base, _, last, _ in file.walk(start):
            if position == start and position and not lowest <= base <= offset:
                raise CorruptIndexError(f"{self.offsets.path} points to no batch at or before offset {offset}")
            rises = rises and base >= lowest
            if last >= offset:
                if not rises and base > offset:
                    raise TornSegmentError(f"{file.path()} has offsets before byte {position} that do not rise")
                return position
            lowest = last + 1
        return file.size

    def _indexed(self, offset: int) -> int:
        """The position at which a walk to `offset` may begin. Raises CorruptIndexError if it is outside of the file."""
        position = self.offsets.lookup(offset)
        if position and position >= self._file.size:
            raise CorruptIndexError(f"{self.offsets.path} points behind the end, to {position}")
        return position

    def cut(self, start: int, limit: int) -> int:
        """Return the greatest batch end after the batch start `start` that is not above `limit`, else `start`."""
        far = limit - start > WALK_CHUNK
        end = max(self.offsets.floor_position(limit), start) if far else start
        next_offset = -1
        for position, base, size, last, _ in self._file.walk(end):
            if position + size > limit:
                next_offset = base if next_offset < 0 else next_offset
                break
            end, next_offset = position + size, last + 1
        if end > start:
            self._hint(next_offset, end)
        return end

    def _hint(self, offset: int, position: int) -> None:
        """Cache the position of `offset`, which a sequential reader will request next."""
        hints = self._hints
        if len(hints) >= _HINTS:
            del hints[next(iter(hints))]
        hints[offset] = position

    def next_offset(self) -> int:
        """Return the offset after the last batch; the base offset if there is none."""
        file = self._file
        result = file.base_offset
        _, position = self.offsets.last()
        end = position if position < file.size else 0
        for position, _, size, last, _ in file.walk(end):
            end = position + size
            result = last + 1
        if end != file.size:
            raise TornSegmentError(f"{file.path()} ends within a batch, at {end} of {file.size}")
        return result

    # Timestamps

    def largest_timestamp(self) -> tuple[int, int]:
        """Return the greatest timestamp and the last offset of its batch; (-1, base offset) if there is none."""
        if self._max_timestamp is None:
            file = self._file
            if file.fd >= 0:
                self._max_timestamp, self._max_offset = self._look_up_largest()
            elif file.size:
                file.fd = file.files.open(file.path(), read_only=True)
                try:
                    self._max_timestamp, self._max_offset = self._look_up_largest()
                finally:  # thousands of segments are read in a row: they must not evict the descriptors of readers
                    file.close_file()
            else:
                self._max_timestamp = -1
        return self._max_timestamp, self._max_offset

    def _look_up_largest(self) -> tuple[int, int]:
        file = self._file
        timestamp, offset = -1, file.base_offset
        if file.size <= WALK_CHUNK:  # one read of the batches is cheaper than the index, and certain
            for _, _, _, last, greatest in file.walk(0):
                if greatest > timestamp:
                    timestamp, offset = greatest, last
            return timestamp, offset
        timestamp, offset = self._verified(TimeIndex.last)
        if file.sealed and timestamp >= 0:
            return timestamp, offset
        for _, _, header in file.batches(self._indexed(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        return timestamp, offset

    def _verified(self, look: Callable[[TimeIndex], tuple[int, int]]) -> tuple[int, int]:
        """An entry of the time index, verified against its batch; if they differ, the index is rebuilt.

        Retention uses the result, too: a corrupt index must not cost records.
        """
        try:
            timestamp, offset = look(self.times)
            if not self._file.sealed or timestamp < 0 or self._agrees(timestamp, offset):
                return timestamp, offset
        except CorruptIndexError as error:
            logger.warning("%s", error)
        logger.warning("Rebuilding index %s: it disagrees with its segment", self.times.path)
        self.rebuild(_REBUILD_INTERVAL)
        return look(self.times)

    def _agrees(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that holds `offset` has this greatest timestamp."""
        for _, _, _, last, greatest in self._file.walk(self._indexed(offset)):
            if last >= offset:
                return greatest == timestamp
        return False

    def before_timestamp(self, timestamp: int) -> int:
        """Return an offset before all records of `timestamp` or later; the base offset if none is known."""
        return self._verified(lambda index: index.lookup(timestamp - 1))[1]

    def first_batch_timestamp(self) -> int:
        """Return the first batch's greatest timestamp, from which segment.ms counts; -1 in an empty segment."""
        if self.first_timestamp is None:
            if self._file.size < HEADER_SIZE:
                return -1
            self.first_timestamp = read_header(self._file.read(0, HEADER_SIZE)).max_timestamp
        return self.first_timestamp

    # Changing

    def has_sound_transactions(self) -> bool:
        """Whether the index of aborted transactions is valid; a file that never existed is."""
        try:
            self.transactions.all()
        except CorruptIndexError:
            return False
        return True

    def rebuild(self, index_interval: int) -> None:
        """Rebuild the offset and time indices from the batches. Cost: one read of the segment."""
        sealed = self._file.sealed
        self._hints.clear()
        self.start(fresh=True)
        try:
            for position, data, header in self._file.batches():
                self.note(position, len(data), header.last_offset, header.max_timestamp, index_interval)
            if sealed:
                self.write_out()
                self.release()
        except OSError:
            if sealed:
                self._forget()
            raise

    def _forget(self) -> None:
        """Undo a failed rebuild: without index files, the next read rebuilds them."""
        self._max_timestamp = None
        for index in (self.offsets, self.times):
            index.release()
            self._file.files.unlink(index.path)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries of `offset` and above, except from the files of the offset and time index."""
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.transactions.truncate_to(offset)
        self._hints.clear()
        self.unindexed = 0
        self._max_timestamp = None

    def move(self) -> None:
        """Use the present paths of the segment's files, which were renamed."""
        created = ((self._offsets, ".index"), (self._times, ".timeindex"), (self._transactions, ".txnindex"))
        for index, suffix in created:
            if index is not None:
                index.path = self._file.path(suffix)
