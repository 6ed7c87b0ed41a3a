"""One segment: a run of batches in a `.log` file with its indices, named by its base offset.

The last segment of a log is *active*: batches are appended to it and its indices are in memory. The others are
*sealed*. A segment joins its file (`segment_file`), its indices (`segment_indices`) and the cache of its recent batches
(`recent_batches`). It does not repeat the checks of its log, and raises OSError as the disk does.
"""

from __future__ import annotations

from struct import Struct

from ottla.log.files import Files
from ottla.log.open_files import OpenFiles
from ottla.log.recent_batches import NO_BATCHES, RecentBatches
from ottla.log.segment_file import SegmentFile, TornSegmentError
from ottla.log.segment_indices import SegmentIndices
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, Buffer
from ottla.records.batch import MAGIC, MAGIC_POSITION

INT32_MAX = 0x7FFFFFFF
ROLLED = ".rolled"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
# Base offset, length, last offset delta.
_PLACE = Struct(">qi11xi")


class Segment:
    """A file with its indices and caches."""

    __slots__ = ("base_offset", "created_ms", "file", "indices", "recent", "repaired_ms", "sound_to")

    def __init__(self, file: SegmentFile) -> None:
        self.base_offset = file.base_offset
        self.file = file
        self.indices = SegmentIndices(file)
        self.recent = NO_BATCHES
        self.created_ms = 0
        # Up to this position, this process wrote the batches or checked that each follows the previous one.
        self.sound_to = 0
        self.repaired_ms: int | None = None

    def __repr__(self) -> str:
        greatest = self.indices.max_timestamp
        largest = "" if greatest is None else f", largestRecordTimestamp={greatest}"
        return f"LogSegment(baseOffset={self.base_offset}, size={self.file.size}{largest})"

    # Opening and closing

    @classmethod
    def of_files(
        cls, files: Files, directory: str, base_offset: int, open_files: OpenFiles, *, size: int = 0, suffix: str = ""
    ) -> Segment:
        """Return the segment of existing files."""
        return cls(SegmentFile(files, directory, base_offset, open_files, size=size, suffix=suffix))

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
    ) -> Segment:
        """Create an empty active segment. Existing files are truncated."""
        segment = cls.of_files(files, directory, base_offset, open_files, suffix=suffix)
        file = segment.file
        file.create()
        try:
            segment.indices.start()
            segment.indices.transactions.rewrite([])
        except OSError:
            # The next recovery would end the log at an empty segment left behind.
            file.close_file()
            files.unlink(file.path())
            raise
        segment.start(now_ms)
        return segment

    @classmethod
    def planned(cls, files: Files, directory: str, open_files: OpenFiles, now_ms: int) -> Segment:
        """An empty active segment at offset 0 without files or a directory; an append or `create_planned` creates them.

        A log without records has nothing that a crash could lose, and creating its files costs a millisecond.
        """
        segment = cls.of_files(files, directory, 0, open_files)
        segment.indices.start(fresh=True)
        segment.file.allocated = 0  # the first append calls `allocate_ahead`
        segment.file.to_create = True
        segment.start(now_ms)
        return segment

    def start(self, now_ms: int) -> None:
        """Begin appends to an empty segment."""
        self.file.sealed = False
        self.file.evictable = False
        self.created_ms = now_ms
        self.recent = RecentBatches(self.base_offset)

    def activate(self) -> None:
        """Make a sealed segment writable again. Raises CorruptIndexError if its indices must be rebuilt first."""
        self.indices.load()
        self.file.unseal()
        self.recent = RecentBatches()

    def seal(self) -> None:
        """End appends: index the greatest timestamp and release the indices' memory."""
        self.write_out()
        self.mark_sealed()

    def write_out(self) -> None:
        """Write everything that must be in the files before `mark_sealed`. If it raises, appends may continue."""
        self.file.free_blocks()
        self.indices.write_out()

    def mark_sealed(self) -> None:
        """Release the memory of a segment after `write_out`; this cannot fail."""
        self.indices.release()
        self.recent = NO_BATCHES
        self.file.seal()

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment that exist."""
        self.file.rename(suffix)
        self.indices.move()

    def move_to(self, directory: str) -> None:
        """Take in that the directory of the segment was renamed."""
        self.file.directory = directory
        self.indices.move()

    # Appending

    def append(self, buffer: Buffer, last_offset: int, max_timestamp: int, index_interval: int) -> None:
        """Write one batch at the end. If it raises, the size is unchanged but the file may be longer."""
        file = self.file
        position = file.size
        size = len(buffer)
        end = position + size
        if end > file.allocated:
            file.allocate_ahead(end)
        file.files.pwrite(file.fd, buffer, position)
        self.indices.note(position, size, last_offset, max_timestamp, index_interval)
        file.size = end
        if self.sound_to == position:
            self.sound_to = end
        self.recent.add(last_offset, position)

    def cover_tail(self, position: int, next_offset: int) -> None:
        """Start the cache of recent batches with the next one, of `next_offset`, if it is written at `position`."""
        if position == self.file.size:
            self.recent.begin_at(next_offset)

    # Looking up

    def locate(self, offset: int) -> int:
        """Return the position of the first batch that ends at `offset` or later; the size if there is none.

        Raises TornSegmentError and CorruptIndexError, see `SegmentIndices.locate`.
        """
        recent = self.recent
        if offset >= recent.first:
            return recent.locate(offset, self.file.size)
        return self.indices.locate(offset)

    def cut(self, start: int, limit: int) -> int:
        """Return the greatest batch end after the batch start `start` that is not above `limit`, else `start`."""
        end = self.recent.cut(start, limit)
        return end if end >= 0 else self.indices.cut(start, limit)

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
                raise TornSegmentError(f"{self.file.path()} has offset {base} at byte {start + position}")
            lowest = base + delta + 1
            position += length + LOG_OVERHEAD
        if start <= self.sound_to:
            self.sound_to = start + min(position, end)

    def _base_at(self, position: int, end_offset: int) -> int:
        """The base offset of the batch at a position; `end_offset` if there is none."""
        head = self.file.head_at(position) if position < self.file.size else b""
        if len(head) < HEADER_SIZE or head[MAGIC_POSITION] != MAGIC:
            return end_offset
        base: int = _PLACE.unpack_from(head)[0]
        return base

    # Changing

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it; the segment must be active."""
        file, indices = self.file, self.indices
        position = self.locate(offset)
        indices.truncate_to(offset)
        file.files.truncate(file.fd, position)
        file.size = position
        self.sound_to = min(self.sound_to, position)
        indices.offsets.write_pending()
        indices.times.write_pending()
        self.recent = RecentBatches()
        if position == 0:
            indices.first_timestamp = None
            self.created_ms = 0


class CorruptSegmentError(Exception):
    """A segment or one of its indices is corrupt: `segment` must be repaired."""

    def __init__(self, segment: Segment, problem: Exception) -> None:
        super().__init__(str(problem))
        self.segment = segment
