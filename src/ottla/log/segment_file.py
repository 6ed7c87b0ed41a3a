"""The `.log` file of a segment: its descriptor, its blocks, and the batches in it.

The descriptor of a *sealed* segment is opened on first use, and `OpenFiles` closes it again when too many are open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct

from ottla.common.ids import ZERO_UUID, Uuid
from ottla.log.checkpoints import topic_id_path, write_topic_id
from ottla.log.files import Files
from ottla.log.open_files import OpenFiles
from ottla.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Buffer, check_crc, iter_batches, read_header
from ottla.records.batch import MAGIC, MAGIC_POSITION

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
# Base offset, length, last offset delta; greatest timestamp.
_PLACE = Struct(">qi11xi8xq")
WALK_CHUNK = 8192
SCAN_CHUNK = 1 << 20
# Writing into preallocated blocks costs a third less. Small segments get none: there may be thousands of them.
ALLOCATE_FROM = 8 << 20
ALLOCATED_AHEAD = 2 << 20
_NEVER = 1 << 63

logger = logging.getLogger(__name__)


def file_name(base_offset: int, suffix: str = ".log") -> str:
    """Kafka's name: the base offset in twenty digits."""
    return f"{base_offset:020d}{suffix}"


class TornSegmentError(Exception):
    """A segment has bytes that are not a whole batch where one is expected."""


class SegmentFile:
    """`size` is the position of the next batch. A `suffix` marks files that are not part of the log."""

    __slots__ = (
        "allocated",
        "base_offset",
        "directory",
        "evictable",
        "fd",
        "files",
        "open_files",
        "sealed",
        "size",
        "suffix",
        "to_create",
        "topic_id",
    )

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
        # Up to this position, no blocks need to be allocated.
        self.allocated = ALLOCATE_FROM
        # Whether the segment is `planned`, and `create_planned` is due.
        self.to_create = False
        # For `partition.metadata`, which is written by `create_planned`.
        self.topic_id = ZERO_UUID

    def path(self, suffix: str = ".log") -> str:
        """Path of one of the segment's files."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}{self.suffix}"

    # Creating, opening and closing

    def create(self) -> None:
        """Create the file, empty and for appends. An existing file is truncated."""
        self.fd = self.files.open(self.path(), create=True, truncate=True)

    def adopt(self, topic_id: Uuid) -> str:
        """Write `partition.metadata`, or leave it to `create_planned`; returns the path, which the caller syncs."""
        self.topic_id = topic_id
        if not self.to_create:
            write_topic_id(self.files, self.directory, topic_id)
        return topic_id_path(self.directory)

    def create_planned(self) -> None:
        """Create the directory, `partition.metadata` and the log file of a planned segment.

        The topic id comes before the first record: it distinguishes the records from another topic of the same name.
        The next flush syncs all of them. If it raises OSError, it may be called again.
        """
        self.files.make_directory(self.directory)
        if self.topic_id != ZERO_UUID:
            write_topic_id(self.files, self.directory, self.topic_id)
        self.create()
        self.allocated = ALLOCATE_FROM
        self.to_create = False

    def unseal(self) -> None:
        """Open the file for appends."""
        self.evictable = False  # before `open`, which may close evictable segments
        self.open()
        self.open_files.forget(self)
        self.sealed = False

    def seal(self) -> None:
        """End appends; this cannot fail."""
        self.sealed = True
        if self.fd >= 0:
            self.open_files.touch(self)

    def open(self) -> int:
        """Return the descriptor; opens the file if necessary."""
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

    def rename(self, suffix: str) -> None:
        """Give all files of the segment that exist another suffix."""
        old = [self.path(kind) for kind in SUFFIXES]
        self.suffix = suffix
        for kind, path in zip(SUFFIXES, old, strict=True):
            if self.files.exists(path):
                self.files.rename(path, self.path(kind))

    def modified_ms(self) -> int:
        """Return the time of the last write to the file."""
        return self.files.modified_ms(self.path())

    # Blocks

    def allocate_ahead(self, end: int) -> None:
        """Allocate blocks beyond `end`, up to which a batch will be written; creates a planned segment."""
        if self.to_create:
            self.create_planned()
            if end <= self.allocated:
                return
        self.allocated = end + ALLOCATED_AHEAD
        try:
            self.files.allocate(self.fd, end, ALLOCATED_AHEAD)
        except OSError as error:
            # Nothing is lost: if there is no space, the write fails.
            logger.debug("Cannot preallocate blocks for %s: %s", self.path(), error)
            self.allocated = _NEVER

    def free_blocks(self) -> None:
        """Free the blocks behind the last batch."""
        if self.allocated > max(self.size, ALLOCATE_FROM):
            self.files.truncate(self.fd, self.size)
            self.allocated = ALLOCATE_FROM

    # Reading

    def read(self, start: int, end: int) -> Buffer:
        """Return the bytes between two positions."""
        return self.files.pread_large(self.open(), end - start, start)

    def head_at(self, position: int) -> bytes:
        """Return the header of the batch at a position, or fewer bytes at the end of the file."""
        return self.files.pread(self.open(), HEADER_SIZE, position)

    def batch_size(self, position: int) -> int:
        """Return the size of the batch at `position`."""
        return read_header(self.head_at(position)).size

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield position, base offset, size, last offset, greatest timestamp of each batch from `position` on.

        Raises TornSegmentError if the bytes at a position are not a whole batch.
        """
        data = b""
        start = position
        end = self.size
        while end - position >= HEADER_SIZE:
            at = position - start
            if len(data) - at < HEADER_SIZE:
                fd = self.fd if self.fd >= 0 else self.open()  # `read` notes the use
                data = self.files.pread(fd, min(WALK_CHUNK, end - position), position)
                start, at = position, 0
                if len(data) < HEADER_SIZE:
                    raise TornSegmentError(f"{self.path()} is shorter than {end} bytes")
            base, length, delta, timestamp = _PLACE.unpack_from(data, at)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or position + size > end or data[at + MAGIC_POSITION] != MAGIC:
                raise TornSegmentError(f"{self.path()} holds no whole batch at {position}")
            yield position, base, size, base + delta, timestamp
            position += size

    def batches(self, position: int = 0, *, checked: bool = False) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """Yield position, bytes and header of each whole batch from `position` on.

        Raises KafkaError(CORRUPT_MESSAGE) at bytes that are not a batch; with `checked` it stops at the first batch
        with a wrong CRC. It stops without an error at an incomplete tail.
        """
        chunk = SCAN_CHUNK
        while self.size - position >= HEADER_SIZE:
            # Open the file for each chunk: the caller may cause the descriptor to be closed in between.
            data = memoryview(self.files.pread(self.open(), min(chunk, self.size - position), position))
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
