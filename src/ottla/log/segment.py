"""One segment: a run of batches in a `.log` file with its indices, named by its base offset.

The last segment of a log is *active*: batches are appended to it and its indices are in memory. The others are
*sealed*: their descriptor is opened on first use, and `OpenFiles` closes it again when too many are open. The positions
of recent batches (active) and of the next batch of a sequential reader (sealed) are cached, so that common reads need
no index. A segment does not repeat the checks of its log, and raises OSError as the disk does.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING

from ottla.common.ids import ZERO_UUID, Uuid
from ottla.log.checkpoints import topic_id_path, write_topic_id
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.open_files import OpenFiles
from ottla.log.txn_index import TxnIndex
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, check_crc, iter_batches, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION
from ottla.records.survey import Survey

INT32_MAX = 0x7FFFFFFF
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
ROLLED = ".rolled"
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
# Writing into preallocated blocks costs a third less. Small segments get none: there may be thousands of them.
ALLOCATE_FROM = 8 << 20
ALLOCATED_AHEAD = 2 << 20
_NEVER = 1 << 63
# Interval of an index that is rebuilt because it is corrupt: Kafka's default of index.interval.bytes.
_REBUILD_INTERVAL = 4096

logger = logging.getLogger(__name__)


def file_name(base_offset: int, suffix: str = ".log") -> str:
    """Kafka's name: the base offset in twenty digits."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """`size` is the position of the next batch. Indices and caches are created on first use."""

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
        "to_create",
        "topic_id",
        "txn_index",
        "unindexed",
    )
    # `__getattr__` creates these.
    offset_index: OffsetIndex
    time_index: TimeIndex
    txn_index: TxnIndex
    _hints: dict[int, int]
    # Last offsets and positions of the newest batches: of all offsets from `recent_from` on.
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
        # False until the segment is synced: another thread is about to sync this descriptor.
        self.evictable = True
        self.created_ms = 0
        self.first_timestamp: int | None = None
        self.unindexed = 0
        # Up to this position, no blocks need to be allocated.
        self.allocated = ALLOCATE_FROM
        # Whether the segment is `planned`, and `create_files` is due.
        self.to_create = False
        # For `partition.metadata`, which is written by `create_files`.
        self.topic_id = ZERO_UUID
        # Up to this position, this process wrote the batches or checked that each follows the previous one.
        self.sound_to = 0
        self.repaired_ms: int | None = None
        self._max_timestamp: int | None = None
        self._max_offset = base_offset
        self.recent_from = _NOTHING_RECENT

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Create an attribute on first use: few of a log's thousands of old segments are ever read."""
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

    # Opening and closing

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
    ) -> "Segment":
        """Create an empty active segment. Existing files are truncated."""
        segment = cls(files, directory, base_offset, open_files, suffix=suffix)
        segment.fd = files.open(segment.path(), create=True, truncate=True)
        try:
            segment.start_indices()
            segment.txn_index.rewrite([])
        except OSError:
            # The next recovery would end the log at an empty segment left behind.
            segment.close_file()
            files.unlink(segment.path())
            raise
        segment.sealed = False
        segment.evictable = False
        segment.created_ms = now_ms
        segment.recent_from = base_offset
        return segment

    @classmethod
    def planned(cls, files: Files, directory: str, open_files: OpenFiles, now_ms: int) -> "Segment":
        """An empty active segment at offset 0, without files or a directory; `create_files` or an append creates them.

        A log without records has nothing that a crash could lose, and creating its files costs a millisecond.
        """
        segment = cls(files, directory, 0, open_files)
        segment.start_indices(fresh=True)
        segment.allocated = 0  # the first append calls `_allocate_ahead`
        segment.to_create = True
        segment.sealed = False
        segment.evictable = False
        segment.created_ms = now_ms
        segment.recent_from = 0
        return segment

    def adopt(self, topic_id: Uuid) -> str:
        """Write `partition.metadata`, or leave it to `create_files`; the path, which the caller syncs with the log."""
        self.topic_id = topic_id
        if not self.to_create:
            write_topic_id(self.files, self.directory, topic_id)
        return topic_id_path(self.directory)

    def create_files(self) -> None:
        """Create the directory, `partition.metadata` and the log file of a `planned` segment.

        The topic id comes before the first record: it tells the records from those of another topic of the same name.
        The next flush syncs all of them. If it raises OSError, it may be called again.
        """
        self.files.make_directory(self.directory)
        if self.topic_id != ZERO_UUID:
            write_topic_id(self.files, self.directory, self.topic_id)
        self.fd = self.files.open(self.path(), create=True, truncate=True)
        self.allocated = ALLOCATE_FROM
        self.to_create = False

    def start_indices(self, *, fresh: bool = False) -> None:
        """Start empty indices in memory, for appends or a recovery; with `fresh` their files are created later."""
        self.offset_index.start(fresh=fresh)
        self.time_index.start(fresh=fresh)
        self.unindexed = 0
        self._max_timestamp = -1
        self._max_offset = self.base_offset

    def activate(self) -> None:
        """Make a sealed segment writable again. Raises CorruptIndexError if its indices must be rebuilt first."""
        if not self.offset_index.in_memory:
            self.offset_index.load()
        if not self.time_index.in_memory:
            self.time_index.load()
        self.evictable = False  # before `open_file`, which may close evictable segments
        self.open_file()
        self.open_files.forget(self)
        self.sealed = False
        self.recent_from = _NOTHING_RECENT
        self._recent_last.clear()
        self._recent_positions.clear()
        self._hints.clear()

    def seal(self) -> None:
        """End appends: index the greatest timestamp and release the indices' memory."""
        self.write_out()
        self.mark_sealed()

    def write_out(self) -> None:
        """Write everything that must be in the files before `mark_sealed`. If it raises, appends may continue."""
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
        """Release the memory of a segment after `write_out`; this cannot fail."""
        self.offset_index.release()
        self.time_index.release()
        self.sealed = True
        self._recent_last.clear()
        self._recent_positions.clear()
        self.recent_from = _NOTHING_RECENT
        if self.fd >= 0:
            self.open_files.touch(self)

    def open_file(self) -> int:
        """The descriptor; opens the file if necessary."""
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
        """Rename all files of the segment that exist."""
        old = [self.path(kind) for kind in SUFFIXES]
        self.suffix = suffix
        for kind, path in zip(SUFFIXES, old, strict=True):
            if self.files.exists(path):
                self.files.rename(path, self.path(kind))
        self.move_to(self.directory)

    def move_to(self, directory: str) -> None:
        """Take in that the directory of the segment was renamed."""
        self.directory = directory
        self.offset_index.path = self.path(".index")
        self.time_index.path = self.path(".timeindex")
        self.txn_index.path = self.path(".txnindex")

    # Appending

    def append(self, buffer: Buffer, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Write one batch at the end. If it raises, `size` is unchanged but the file may be longer."""
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
        if self.to_create:
            self.create_files()
            if end <= self.allocated:
                return
        self.allocated = end + ALLOCATED_AHEAD
        try:
            self.files.allocate(self.fd, end, ALLOCATED_AHEAD)
        except OSError as error:
            # Nothing is lost: if there is no space, the write fails.
            logger.debug("Cannot preallocate blocks for %s: %s", self.path(), error)
            self.allocated = _NEVER

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Add a batch of the file to the indices, in the order of the file."""
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

    def survey(
        self, position: int, expected: int, end_offset: int, *, known_to: int, epoch: int, interval: int
    ) -> "Survey":
        """Create a survey that continues the indices, which are in memory; `take` returns its results to them."""
        survey = Survey(self.base_offset, position, expected, end_offset, known_to, epoch)
        survey.index_interval = interval
        survey.max_timestamp, survey.max_offset = self.largest_timestamp()
        survey.last_time, _ = self.time_index.last()
        survey.unindexed = self.unindexed
        return survey

    def take(self, survey: "Survey") -> None:
        """Add the survey's entries to the indices, as `note` does for one batch."""
        offsets, positions, timestamps, time_offsets = survey.take_entries()
        self.offset_index.extend(offsets, positions)
        self.time_index.extend(timestamps, time_offsets)
        if self.first_timestamp is None and survey.first_timestamp >= 0:
            self.first_timestamp = survey.first_timestamp
        self._max_timestamp, self._max_offset = survey.max_timestamp, survey.max_offset
        self.unindexed = survey.unindexed

    def cover_tail(self, position: int, next_offset: int) -> None:
        """Start the cache of recent batches with the one to be written at `position` for `next_offset`."""
        if position == self.size and not self._recent_last:
            self.recent_from = next_offset

    # Looking up

    def locate(self, offset: int) -> int:
        """Position of the first batch that ends at `offset` or later; `size` if there is none.

        Raises TornSegmentError if no batch holds `offset` and offsets do not rise up to there: a wrong base offset may
        hide the batch.
        """
        if offset >= self.recent_from:
            i = bisect_left(self._recent_last, offset)
            return self._recent_positions[i] if i < len(self._recent_positions) else self.size
        position = self._hints.get(offset)
        if position is not None:
            return position
        start = self._indexed(offset)
        lowest, rises = self.base_offset, True
        for position, base, _, last, _ in self.walk(start):
            if position == start and position and not lowest <= base <= offset:
                raise CorruptIndexError(f"{self.offset_index.path} points to no batch at or before offset {offset}")
            rises = rises and base >= lowest
            if last >= offset:
                if not rises and base > offset:
                    raise TornSegmentError(f"{self.path()} has offsets before byte {position} that do not rise")
                return position
            lowest = last + 1
        return self.size

    def _indexed(self, offset: int) -> int:
        """The position at which a walk to `offset` may begin. Raises CorruptIndexError if it is outside of the file."""
        position = self.offset_index.lookup(offset)
        if position and position >= self.size:
            raise CorruptIndexError(f"{self.offset_index.path} points behind the end, to {position}")
        return position

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Position, base offset, size, last offset, greatest timestamp of each batch from `position` on.

        Raises TornSegmentError if the bytes at a position are not a whole batch.
        """
        data = b""
        start = position
        end = self.size
        while end - position >= HEADER_SIZE:
            at = position - start
            if len(data) - at < HEADER_SIZE:
                fd = self.fd if self.fd >= 0 else self.open_file()  # `read` notes the use
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
        """The greatest batch end after the batch start `start` that is not above `limit`; `start` if there is none."""
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

    def check_frames(self, data: Buffer, start: int, offset: int, end_offset: int) -> None:
        """Check that the offsets of the batches in `data`, from position `start` on, rise: no CRC covers them.

        The first batch ends at `offset` or later. All end below `end_offset` and below the next batch of the file. On
        success `sound_to` moves, so that nothing is checked twice. Raises TornSegmentError.
        """
        position, end = 0, len(data)
        end_offset = min(end_offset, self._base_at(start + end, end_offset))
        lowest = self.base_offset
        while end - position >= HEADER_SIZE:
            base, length, delta = _PLACE.unpack_from(data, position)
            right = base >= lowest and (position > 0 or base + delta >= offset)
            right = right and data[position + MAGIC_POSITION] == MAGIC  # the CRC does not cover it either
            if not right or not 0 <= delta < end_offset - base or length + LOG_OVERHEAD < HEADER_SIZE:
                raise TornSegmentError(f"{self.path()} has offset {base} at byte {start + position}")
            lowest = base + delta + 1
            position += length + LOG_OVERHEAD
        if start <= self.sound_to:
            self.sound_to = start + min(position, end)

    def _base_at(self, position: int, end_offset: int) -> int:
        """The base offset of the batch at a position; `end_offset` if there is none."""
        head = self.files.pread(self.open_file(), HEADER_SIZE, position) if position < self.size else b""
        if len(head) < HEADER_SIZE or head[MAGIC_POSITION] != MAGIC:
            return end_offset
        base: int = _PLACE.unpack_from(head)[0]
        return base

    def hint(self, offset: int, position: int) -> None:
        """Cache the position of `offset`, which a sequential reader will request next."""
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

        Raises KafkaError(CORRUPT_MESSAGE) at bytes that are not a batch; with `checked` it stops at the first batch
        with a wrong CRC. It stops without an error at an incomplete tail.
        """
        chunk = SCAN_CHUNK
        while self.size - position >= HEADER_SIZE:
            # Open the file for each chunk: the caller may cause the descriptor to be closed in between.
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
                finally:  # thousands of segments are read in a row: they must not evict the descriptors of readers
                    self.close_file()
            else:
                self._max_timestamp = -1
        return self._max_timestamp, self._max_offset

    def _look_up_largest(self) -> tuple[int, int]:
        timestamp, offset = -1, self.base_offset
        if self.size <= _WALK_CHUNK:  # one read of the batches is cheaper than the index, and certain
            for _, _, _, last, greatest in self.walk(0):
                if greatest > timestamp:
                    timestamp, offset = greatest, last
            return timestamp, offset
        timestamp, offset = self._verified(TimeIndex.last)
        if self.sealed and timestamp >= 0:
            return timestamp, offset
        for _, _, header in self.batches(self._indexed(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        return timestamp, offset

    def _verified(self, look: Callable[[TimeIndex], tuple[int, int]]) -> tuple[int, int]:
        """An entry of the time index, verified against its batch; if they differ, the index is rebuilt.

        Retention uses the result, too: a corrupt index must not cost records.
        """
        try:
            timestamp, offset = look(self.time_index)
            if not self.sealed or timestamp < 0 or self._agrees(timestamp, offset):
                return timestamp, offset
        except CorruptIndexError as error:
            logger.warning("%s", error)
        logger.warning("Rebuilding index %s: it disagrees with its segment", self.time_index.path)
        self.rebuild_indices(_REBUILD_INTERVAL)
        return look(self.time_index)

    def _agrees(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that holds `offset` has this greatest timestamp."""
        for _, _, _, last, greatest in self.walk(self._indexed(offset)):
            if last >= offset:
                return greatest == timestamp
        return False

    def before_timestamp(self, timestamp: int) -> int:
        """An offset such that all records of `timestamp` or later come after it; the base offset if none is known."""
        return self._verified(lambda index: index.lookup(timestamp - 1))[1]

    def first_batch_timestamp(self) -> int:
        """The first batch's greatest timestamp, from which segment.ms counts; -1 in an empty segment."""
        if self.first_timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            self.first_timestamp = read_header(self.read(0, HEADER_SIZE)).max_timestamp
        return self.first_timestamp

    def modified_ms(self) -> int:
        """Time of the last write to the file."""
        return self.files.modified_ms(self.path())

    # Changing

    def has_sound_txn_index(self) -> bool:
        """Whether the index of aborted transactions is valid; a file that never existed is."""
        try:
            self.txn_index.all()
        except CorruptIndexError:
            return False
        return True

    def rebuild_indices(self, index_interval: int) -> None:
        """Rebuild the offset and time indices from the batches. Cost: one read of the segment."""
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
        """Undo a failed rebuild: without index files, the next read rebuilds them."""
        self._max_timestamp = None
        for index in (self.offset_index, self.time_index):
            index.release()
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
    """A segment has bytes that are not a whole batch where one is expected."""


class CorruptSegmentError(Exception):
    """A segment or one of its indices is corrupt: `segment` must be repaired."""

    def __init__(self, segment: Segment, problem: Exception) -> None:
        super().__init__(str(problem))
        self.segment = segment
