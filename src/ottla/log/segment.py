"""One segment: a run of batches in a `.log` file with its indices, named by its base offset.

The last segment of a log is *active*: it is appended to and its indices are in memory. The others are *sealed*: their
descriptor is opened on first use and may be closed again by `OpenFiles` when too many are open. Positions of recent
batches (active) and of the next batch of a sequential reader (sealed) are remembered, so that the common reads need no
index. A segment checks nothing that its log has checked, and raises OSError as the disk does.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

from ottla.log.files import Files
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.open_files import OpenFiles
from ottla.log.txn_index import TxnIndex
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, check_crc, iter_batches, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION

if TYPE_CHECKING:
    from ottla.records.survey import Survey

INT32_MAX = 0x7FFFFFFF
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
# Base offset, length, last offset delta; then the greatest timestamp.
_PLACE = Struct(">qi11xi")
_PLACE_AND_TIME = Struct(">qi11xi8xq")
_WALK_CHUNK = 8192
SCAN_CHUNK = 1 << 20
_RECENT = 1024
_HINTS = 32
_NOTHING_RECENT = 1 << 63
# A file that has blocks for what comes next is a third cheaper to write to than one that gets each block by itself.
# Not for small ones: there may be thousands.
ALLOCATE_FROM = 8 << 20
ALLOCATED_AHEAD = 2 << 20
_NEVER = 1 << 63
# Of indices that turn out to be harmed: Kafka's default of index.interval.bytes.
_REBUILD_INTERVAL = 4096

logger = logging.getLogger(__name__)


def file_name(base_offset: int, suffix: str = ".log") -> str:
    """Kafka's name: the base offset in twenty digits."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """`size` is where the next batch goes; what belongs to it beside the `.log` is made or looked up when asked for."""

    __slots__ = (
        "_hints",
        "_max_offset",
        "_max_timestamp",
        "_recent_last",
        "_recent_positions",
        "allocated",
        "base_offset",
        "created_ms",
        "directory",
        "evictable",
        "fd",
        "files",
        "first_timestamp",
        "offset_index",
        "open_files",
        "recent_from",
        "repaired_ms",
        "sealed",
        "size",
        "sound_to",
        "suffix",
        "time_index",
        "txn_index",
        "unindexed",
    )
    # Made by `__getattr__`.
    offset_index: OffsetIndex
    time_index: TimeIndex
    txn_index: TxnIndex
    _hints: dict[int, int]
    # Last offsets and positions of the newest batches; they cover all offsets from `recent_from` on.
    _recent_last: list[int]
    _recent_positions: list[int]

    def __init__(
        self, files: Files, directory: str, base_offset: int, open_files: OpenFiles, *, size: int = 0, suffix: str = ""
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.open_files = open_files
        self.suffix = suffix
        self.size = size
        self.fd = -1
        self.sealed = True
        # Not before it is synced: a descriptor that another thread is about to sync must stay what it is.
        self.evictable = True
        self.created_ms = 0
        self.first_timestamp: int | None = None
        self.unindexed = 0
        # Up to here it has blocks, or needs none in advance.
        self.allocated = ALLOCATE_FROM
        # Up to here this process wrote the batches, or saw that each one follows the one before.
        self.sound_to = 0
        self.repaired_ms: int | None = None
        self._max_timestamp: int | None = None
        self._max_offset = base_offset
        self.recent_from = _NOTHING_RECENT

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """What is made when it is first asked for: of a log's thousands of old segments few ever are."""
            made: object
            if name == "offset_index":
                made = OffsetIndex(self.files, self.path(".index"), self.base_offset)
            elif name == "time_index":
                made = TimeIndex(self.files, self.path(".timeindex"), self.base_offset)
            elif name == "txn_index":
                made = TxnIndex(self.files, self.path(".txnindex"))
            elif name == "_hints":
                made = {}
            elif name in {"_recent_last", "_recent_positions"}:
                made = []
            else:
                raise AttributeError(name)
            setattr(self, name, made)
            return made

    def __repr__(self) -> str:
        largest = "" if self._max_timestamp is None else f", largestRecordTimestamp={self._max_timestamp}"
        return f"LogSegment(baseOffset={self.base_offset}, size={self.size}{largest})"

    def path(self, suffix: str = ".log") -> str:
        """Path of one of its files."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}{self.suffix}"

    # Life

    @classmethod
    def create(
        cls,
        files: Files,
        directory: str,
        base_offset: int,
        open_files: OpenFiles,
        now_ms: int,
        *,
        suffix: str = "",
        fresh: bool = False,
    ) -> "Segment":
        """An empty active one; files of the same name are emptied, unless `fresh` says that there are none."""
        segment = cls(files, directory, base_offset, open_files, suffix=suffix)
        segment.fd = files.open(segment.path(), create=True, truncate=True)
        try:
            segment.start_indices(fresh=fresh)
            if not fresh:
                segment.txn_index.rewrite([])
        except OSError:
            # An empty segment that stays would end the log at its base offset for the next recovery.
            segment.close_file()
            files.unlink(segment.path())
            raise
        segment.sealed = False
        segment.evictable = False
        segment.created_ms = now_ms
        segment.recent_from = base_offset
        return segment

    def start_indices(self, *, fresh: bool = False) -> None:
        """Empty indices in memory, to be filled by appends or by a recovery; their files are there later if `fresh`."""
        self.offset_index.start(fresh=fresh)
        self.time_index.start(fresh=fresh)
        self.unindexed = 0
        self._max_timestamp = -1
        self._max_offset = self.base_offset

    def activate(self) -> None:
        """Make a sealed one writable again. Raises CorruptIndexError if its indices must be rebuilt first."""
        if not self.offset_index.in_memory:
            self.offset_index.load()
        if not self.time_index.in_memory:
            self.time_index.load()
        self.evictable = False  # before it is opened among the sealed ones
        self.open_file()
        self.open_files.forget(self)
        self.sealed = False
        self.recent_from = _NOTHING_RECENT
        self._recent_last.clear()
        self._recent_positions.clear()
        self._hints.clear()

    def seal(self) -> None:
        """No more appends: the last timestamp is indexed and the indices leave memory."""
        self.write_out()
        self.mark_sealed()

    def write_out(self) -> None:
        """Write all that `mark_sealed` needs on disk. If this raises, the segment can be appended to as before."""
        if self.time_index.in_memory:
            timestamp, offset = self.largest_timestamp()
            self.time_index.maybe_append(timestamp, offset)
        if self.allocated > max(self.size, ALLOCATE_FROM):
            self.files.truncate(self.fd, self.size)
            self.allocated = ALLOCATE_FROM
        if self.offset_index.in_memory:
            self.offset_index.write_pending()
        if self.time_index.in_memory:
            self.time_index.write_pending()
        self.txn_index.write_pending()

    def mark_sealed(self) -> None:
        """Let go of the memory of a segment that was written out; this cannot fail."""
        self.offset_index.let_go()
        self.time_index.let_go()
        self.sealed = True
        self._recent_last.clear()
        self._recent_positions.clear()
        self.recent_from = _NOTHING_RECENT
        if self.fd >= 0:
            self.open_files.touch(self)

    def open_file(self) -> int:
        """The descriptor, opened if need be."""
        if self.fd < 0:
            self.fd = self.files.open(self.path())
        if self.sealed:
            self.open_files.touch(self)
        return self.fd

    def close_file(self) -> None:
        """Close the descriptor if it is open."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self.open_files.forget(self)
            self.open_files.close(self.files, fd)

    def change_suffix(self, suffix: str) -> None:
        """Rename all its files; those that are not there are passed over."""
        old = [self.path(kind) for kind in SUFFIXES]
        self.suffix = suffix
        for kind, path in zip(SUFFIXES, old, strict=True):
            if self.files.exists(path):
                self.files.rename(path, self.path(kind))
        self.offset_index.path = self.path(".index")
        self.time_index.path = self.path(".timeindex")
        self.txn_index.path = self.path(".txnindex")

    # Appending

    def append(self, buffer: Buffer, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Write one batch at the end. If this raises, `size` is as before and the file may hold a part of it."""
        position = self.size
        size = len(buffer)
        if position + size > self.allocated:
            self._allocate_ahead(position + size)
        self.files.pwrite(self.fd, buffer, position)
        self.note(position, size, last_offset, max_timestamp, index_interval)
        self.size = position + size
        if self.sound_to == position:
            self.sound_to = self.size
        self._recent_last.append(last_offset)
        self._recent_positions.append(position)
        if len(self._recent_last) >= 2 * _RECENT:
            self.recent_from = self._recent_last[_RECENT - 1] + 1
            del self._recent_last[:_RECENT], self._recent_positions[:_RECENT]

    def _allocate_ahead(self, end: int) -> None:
        self.allocated = end + ALLOCATED_AHEAD
        try:
            self.files.allocate(self.fd, end, ALLOCATED_AHEAD)
        except OSError as error:
            # Nothing is lost by it: where there is no room, the write says so.
            logger.debug("Cannot preallocate blocks for %s: %s", self.path(), error)
            self.allocated = _NEVER

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Take a batch that is in the file at `position` into the indices, in the order of the file."""
        if self.first_timestamp is None:
            self.first_timestamp = max_timestamp
        if self._max_timestamp is None:
            self.largest_timestamp()
        if max_timestamp > self._max_timestamp:  # type: ignore[operator]  # looked up just now
            self._max_timestamp = max_timestamp
            self._max_offset = last_offset
        if self.unindexed > index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_offset)  # type: ignore[arg-type]
            self.unindexed = 0
        self.unindexed += size

    def survey(self, position: int, expected: int, *, gaps: bool, known_to: int, epoch: int, interval: int) -> "Survey":
        """One that goes on where the indices, which are in memory, are now; its finds come back with `take`."""
        from ottla.records.survey import Survey

        survey = Survey(self.base_offset, position, expected, gaps, known_to, epoch)
        survey.index_interval = interval
        survey.max_timestamp, survey.max_offset = self.largest_timestamp()
        survey.last_time, _ = self.time_index.last()
        survey.unindexed = self.unindexed
        return survey

    def take(self, survey: "Survey") -> None:
        """Take what the survey has found into the indices, as `note` does for one batch."""
        offsets, positions, timestamps, time_offsets = survey.take_entries()
        self.offset_index.extend(offsets, positions)
        self.time_index.extend(timestamps, time_offsets)
        if self.first_timestamp is None and survey.first_timestamp >= 0:
            self.first_timestamp = survey.first_timestamp
        self._max_timestamp, self._max_offset = survey.max_timestamp, survey.max_offset
        self.unindexed = survey.unindexed

    def cover_tail(self, position: int, next_offset: int) -> None:
        """Start remembering batches with the one to be written at `position` for `next_offset`."""
        if position == self.size and not self._recent_last:
            self.recent_from = next_offset

    # Looking up

    def locate(self, offset: int) -> int:
        """Position of the first batch that ends at `offset` or later; `size` if there is none."""
        if offset >= self.recent_from:
            i = bisect_left(self._recent_last, offset)
            return self._recent_positions[i] if i < len(self._recent_positions) else self.size
        position = self._hints.get(offset)
        if position is not None:
            return position
        start = self._indexed(offset)
        for position, base, _, last, _ in self.walk(start):
            if position == start and position and not self.base_offset <= base <= offset:
                raise CorruptIndexError(f"{self.offset_index.path} points to no batch at or before offset {offset}")
            if last >= offset:
                return position
        return self.size

    def _indexed(self, offset: int) -> int:
        """Where, by the index, a walk to `offset` may begin. Raises CorruptIndexError where no batch can be."""
        position = self.offset_index.lookup(offset)
        if position and position >= self.size:
            raise CorruptIndexError(f"{self.offset_index.path} points behind the end, to {position}")
        return position

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Position, base offset, size, last offset, greatest timestamp of the batches from `position` (a start) on.

        Raises TornSegmentError where no whole batch is.
        """
        data = b""
        start = position
        end = self.size
        while end - position >= HEADER_SIZE:
            at = position - start
            if len(data) - at < HEADER_SIZE:
                fd = self.fd if self.fd >= 0 else self.open_file()  # that it is in use, `read` says
                data = self.files.pread(fd, min(_WALK_CHUNK, end - position), position)
                start, at = position, 0
                if len(data) < HEADER_SIZE:
                    raise TornSegmentError(f"{self.path()} is shorter than {end} bytes")
            base, length, delta, timestamp = _PLACE_AND_TIME.unpack_from(data, at)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or position + size > end or data[at + MAGIC_POSITION] != MAGIC:
                raise TornSegmentError(f"{self.path()} holds no whole batch at {position}")
            yield position, base, size, base + delta, timestamp
            position += size

    def cut(self, start: int, limit: int) -> int:
        """The greatest end of a batch, after `start` (the start of one), that is not beyond `limit`; else `start`."""
        if self._recent_positions and self._recent_positions[0] <= start:
            i = bisect_right(self._recent_positions, limit) - 1
            return max(self._recent_positions[i], start)
        far = limit - start > _WALK_CHUNK
        end = max(self.offset_index.floor_position(limit), start) if far else start
        next_offset = -1
        for position, base, size, last, _ in self.walk(end):
            if position + size > limit:
                next_offset = base if next_offset < 0 else next_offset
                break
            end, next_offset = position + size, last + 1
        if end > start:
            self.hint(next_offset, end)
        return end

    def check_frames(self, data: Buffer, start: int, expected: int | None, end_offset: int) -> None:
        """See that the batches in `data`, from position `start` on, follow each other; their offsets have no CRC.

        `expected` is an offset that the first one must hold; None where there may be gaps. All are below `end_offset`.
        What this process wrote or looked at before is not looked at again. Raises TornSegmentError.
        """
        position, end = 0, len(data)
        gaps = expected is None
        while end - position >= HEADER_SIZE:
            base, length, delta = _PLACE.unpack_from(data, position)
            if gaps:
                right = expected is None or base >= expected
            elif position:
                right = base == expected
            else:
                right = base <= expected <= base + delta
            right = right and data[position + MAGIC_POSITION] == MAGIC  # which has no CRC either
            if not right or not 0 <= delta < end_offset - base or length + LOG_OVERHEAD < HEADER_SIZE:
                raise TornSegmentError(f"{self.path()} has offset {base} at byte {start + position}")
            expected = base + delta + 1
            position += length + LOG_OVERHEAD
        if start <= self.sound_to:
            self.sound_to = start + min(position, end)

    def hint(self, offset: int, position: int) -> None:
        """A reader will soon ask for `offset`, which is at `position`."""
        hints = self._hints
        if len(hints) >= _HINTS:
            del hints[next(iter(hints))]
        hints[offset] = position

    def batch_size(self, position: int) -> int:
        """Size of the batch at `position`."""
        return read_header(self.files.pread(self.open_file(), HEADER_SIZE, position)).size

    def read(self, start: int, end: int) -> Buffer:
        """The bytes between two positions."""
        return self.files.pread_large(self.open_file(), end - start, start)

    def batches(self, position: int = 0, *, checked: bool = False) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """Position, bytes and header of each whole batch from `position` on.

        Raises KafkaError(CORRUPT_MESSAGE) at bytes that are no batch; with `checked` it stops at the first batch whose
        CRC is wrong. An incomplete tail ends it without a word.
        """
        chunk = SCAN_CHUNK
        while self.size - position >= HEADER_SIZE:
            # Not one descriptor for all: what the caller does in between may have it closed.
            data = memoryview(self.files.pread(self.open_file(), min(chunk, self.size - position), position))
            used = 0
            for at, header in iter_batches(data):
                size = header.size
                if checked and not check_crc(data, at, size):
                    return
                yield position + at, data[at : at + size], header
                used = at + size
            if used == 0:
                if len(data) < HEADER_SIZE or read_header(data).size > self.size - position:
                    return
                chunk = read_header(data).size
            else:
                chunk = SCAN_CHUNK
            position += used

    def next_offset(self) -> int:
        """Offset after the last batch; the base offset if there is none."""
        result = self.base_offset
        _, position = self.offset_index.last()
        end = position if position < self.size else 0
        for position, _, size, last, _ in self.walk(end):
            end = position + size
            result = last + 1
        if end != self.size:
            raise TornSegmentError(f"{self.path()} ends within a batch, at {end} of {self.size}")
        return result

    def largest_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp and the last offset of its batch; (-1, base offset) if there is none."""
        if self._max_timestamp is None:
            if self.fd >= 0:
                self._max_timestamp, self._max_offset = self._look_up_largest()
            elif self.size:
                self.fd = self.files.open(self.path(), read_only=True)
                try:
                    self._max_timestamp, self._max_offset = self._look_up_largest()
                finally:  # thousands are asked in a row: readers keep their descriptors
                    self.close_file()
            else:
                self._max_timestamp = -1
        return self._max_timestamp, self._max_offset

    def _look_up_largest(self) -> tuple[int, int]:
        timestamp, offset = -1, self.base_offset
        if self.size <= _WALK_CHUNK:  # one read, of what the indices only tell about
            for _, _, _, last, greatest in self.walk(0):
                if greatest > timestamp:
                    timestamp, offset = greatest, last
            return timestamp, offset
        timestamp, offset = self._believed(TimeIndex.last)
        if self.sealed and timestamp >= 0:
            return timestamp, offset
        for _, _, header in self.batches(self._indexed(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        return timestamp, offset

    def _believed(self, look: Callable[[TimeIndex], tuple[int, int]]) -> tuple[int, int]:
        """An entry of the time index, if the batch there says the same; otherwise the index is made anew.

        Retention goes by it, too: a harmed index must not cost records.
        """
        try:
            timestamp, offset = look(self.time_index)
            if not self.sealed or timestamp < 0 or self._says(timestamp, offset):
                return timestamp, offset
        except CorruptIndexError as error:
            logger.warning("%s", error)
        logger.warning("Rebuilding index %s: it disagrees with its segment", self.time_index.path)
        self.rebuild_indices(_REBUILD_INTERVAL)
        return look(self.time_index)

    def _says(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that holds `offset` has this greatest timestamp."""
        for _, _, _, last, greatest in self.walk(self._indexed(offset)):
            if last >= offset:
                return greatest == timestamp
        return False

    def before_timestamp(self, timestamp: int) -> int:
        """An offset after which, it is known, all records of `timestamp` or later come; the base offset if none."""
        return self._believed(lambda index: index.lookup(timestamp - 1))[1]

    def first_batch_timestamp(self) -> int:
        """The first batch's greatest timestamp, by which rolling is timed; -1 if it is empty."""
        if self.first_timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            self.first_timestamp = read_header(self.read(0, HEADER_SIZE)).max_timestamp
        return self.first_timestamp

    def modified_ms(self) -> int:
        """When the file was last written."""
        return self.files.modified_ms(self.path())

    # Changing

    def has_sound_txn_index(self) -> bool:
        """Whether the index of aborted transactions can be believed; one that never was there can."""
        try:
            self.txn_index.all()
        except CorruptIndexError:
            return False
        return True

    def rebuild_indices(self, index_interval: int) -> None:
        """Rebuild the offset and time indices from the batches, which are believed."""
        sealed = self.sealed
        self._hints.clear()
        self.start_indices(fresh=True)
        try:
            for position, data, header in self.batches():
                self.note(position, len(data), header.last_offset, header.max_timestamp, index_interval)
            if sealed:
                self.seal()
        except OSError:
            if sealed:
                self._forget_indices()
            raise

    def _forget_indices(self) -> None:
        """Undo a rebuild that failed: without its indices, the next read of the segment rebuilds them."""
        self._max_timestamp = None
        for index in (self.offset_index, self.time_index):
            index.let_go()
            self.files.unlink(index.path)

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it; the segment must be active."""
        position = self.locate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.files.truncate(self.fd, position)
        self.size = position
        self.sound_to = min(self.sound_to, position)
        self.offset_index.write_pending()
        self.time_index.write_pending()
        self._hints.clear()
        self._recent_last.clear()
        self._recent_positions.clear()
        self.recent_from = _NOTHING_RECENT
        self.unindexed = 0
        self._max_timestamp = None
        if position == 0:
            self.first_timestamp = None
            self.created_ms = 0


class TornSegmentError(Exception):
    """A segment does not end with a whole batch: it needs recovery."""


class CorruptSegmentError(Exception):
    """A segment or one of its indices is corrupt: `segment` must be repaired."""

    def __init__(self, segment: Segment, problem: Exception) -> None:
        super().__init__(str(problem))
        self.segment = segment
