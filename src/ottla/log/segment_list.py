"""`SegmentList`: the segments of one log, oldest first, and the file operations that change the list.

The last segment is active: batches are appended to it. The list knows nothing of producers, leader epochs or
watermarks; `Log` keeps those in step. Every method raises OSError as the disk does.

One thread calls everything. A flush in another thread reads `active`, `end_offset` and `unsynced` under
`unsynced.lock`, so each change of the list or of a descriptor happens under that lock.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import overload

from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.index import CorruptIndexError
from ottla.log.rolling import RollPolicy
from ottla.log.segment import DELETED, ROLLED, Segment
from ottla.log.segment_file import SUFFIXES, TornSegmentError, file_name
from ottla.log.slices import FileSlice
from ottla.log.unsynced import UnsyncedFiles
from ottla.records import Buffer

logger = logging.getLogger(__name__)

# A larger result is not read here, but when the socket takes it.
UNREAD_BYTES = 64 * 1024


class SegmentList(Sequence[Segment]):
    """Invariants: never empty; base offsets rise; `active` is the last segment; `end_offset` follows its last record.

    There may be gaps between the offsets of batches and between segments. Below `cleaned_to`, the log was compacted.
    """

    def __init__(self, context: LogContext, config: LogConfig, segments: list[Segment], end_offset: int) -> None:
        self.active = segments[-1]
        self.end_offset = end_offset
        self.cleaned_to = 0
        self.max_timestamps: list[int] = []
        """For the first sealed segments: the greatest timestamp up to the end of each. `lookup` fills it."""
        self.unsynced = UnsyncedFiles()
        self.deletions: list[tuple[int, str]] = []
        """Renamed files, with the time at which to delete each."""
        self._context = context
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Use a changed configuration from the next append on."""
        self._config = config
        self._roll_policy = RollPolicy(config, str(self._context.topic_partition))

    # The list

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.file.size for segment in self._segments)

    @property
    def has_files(self) -> bool:
        """Whether the log's directory exists: a new log has none until its first append."""
        return not self.active.file.to_create

    def index_at(self, offset: int) -> int:
        """Index of the segment whose range holds `offset`; 0 for an offset before the first segment."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, index: int) -> int:
        """The offset at which the segment at `index` ends: the base offset of the next one, or the log's end."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else self.end_offset

    # Appending

    def must_roll(self, size: int, last_offset: int, timestamp: int, now_ms: int) -> bool:
        """Whether a batch needs a new segment; see `RollPolicy`."""
        return self._roll_policy.is_due(self.active, size, last_offset, timestamp, now_ms)

    def append(self, buffer: Buffer, last_offset: int, timestamp: int) -> None:
        """Write a batch at the end of the active segment. If the write fails, its partial bytes are cut off."""
        segment = self.active
        try:
            segment.append(buffer, last_offset, timestamp, self._config.index_interval_bytes)
        except OSError:
            self._cut_partial_write(segment)
            raise
        self.end_offset = last_offset + 1

    def _cut_partial_write(self, segment: Segment) -> None:
        if segment.file.to_create:
            return
        try:
            self._context.files.truncate(segment.file.fd, segment.file.size)
        except OSError as error:
            logger.warning("A partial batch stays at the end of %s until recovery: %s", segment.file.path(), error)
            if not self._context.closed:
                self._context.log_directory.take_offline(error)

    def roll(self, now_ms: int, snapshot_path: str | None, offset: int | None = None) -> Segment:
        """Seal the active segment and start a new one at the end of the log, or at a later `offset`.

        The caller wrote the producer snapshot.

        Every step that can fail comes before the first change: a failed roll leaves the list as it was. From then
        on the old segment and the snapshot wait for the next flush, which keeps its promise for both segments.

        Until then, the file `<offset>.rolled` says that the old segment ended where the new one begins. If a power cut
        takes batches between the two, recovery knows that they are lost and no gap. The name comes before the new
        segment's name: a file system that loses names loses the newest.
        """
        context, old = self._context, self.active
        offset = self.end_offset if offset is None else offset
        is_end = offset == self.end_offset
        if is_end:
            mark = f"{context.path}/{file_name(offset, ROLLED)}"
            context.files.close(context.files.open(mark, create=True))
        old.write_out()
        new = Segment.create(context.files, context.path, offset, context.open_files, now_ms)
        unsynced = self.unsynced
        with unsynced.lock:
            old.mark_sealed()
            unsynced.segments.append(old)
            if is_end:
                unsynced.rolled.append(offset)
            if snapshot_path is not None:
                unsynced.paths.append(snapshot_path)
            unsynced.directory_changed = True
            self._segments.append(new)
            self._bases.append(offset)
            self.active = new
            self.end_offset = offset
        return new

    # Reading

    def read(self, offset: int, max_bytes: int, upper_bound: int, *, min_one_batch: bool) -> Buffer | FileSlice:
        """Whole batches of one segment, from the batch that holds `offset` on; see `Log.look_up`.

        Batches that this process neither wrote nor checked before are read here and their frames are checked.
        Raises CorruptIndexError or TornSegmentError if the segment or its index is corrupt.
        """
        segment = self.active
        last_index = len(self._segments) - 1
        i = last_index
        if offset < segment.base_offset:
            i = bisect_right(self._bases, offset) - 1
            segment = self._segments[i]
        position = segment.locate(offset)
        while position >= segment.file.size:  # compaction removed all batches from `offset` to the end of this segment
            i += 1
            if i > last_index:
                return b""
            segment = self._segments[i]
            position = segment.locate(offset)
        segment_end = self.end_offset if i == last_index else self._bases[i + 1]
        stop = segment.file.size if upper_bound >= segment_end else segment.locate(upper_bound)
        if stop - position > max_bytes:
            stop = segment.cut(position, position + max_bytes)
            if stop == position and min_one_batch:
                stop = position + segment.file.batch_size(position)
        if stop <= position:
            return b""
        if stop - position >= UNREAD_BYTES and stop <= segment.sound_to:
            fd = segment.file.open_files.pin(segment.file.open())
            return FileSlice(segment.file, fd, position, stop, self._context)
        data = segment.file.read(position, stop)
        if stop > segment.sound_to:
            segment.check_frames(data, position, offset, segment_end)
        return data

    def index_of_read(self, offset: int) -> int:
        """Index of the segment that a read of `offset` ends up in: compaction may have emptied the first one."""
        i = self.index_at(offset)
        with suppress(CorruptIndexError, TornSegmentError):  # a corrupt segment is the one the read fails in
            while i + 1 < len(self._segments) and self._segments[i].locate(offset) >= self._segments[i].file.size:
                i += 1
        return i

    # Replacing and deleting

    def remove(self, segments: list[Segment]) -> None:
        """Remove segments; their files are renamed now and deleted after file.delete.delay.ms."""
        if segments:
            self.replace(segments, [])

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace `old` segments with sealed `new` ones (the cleaner's swap); the old files are deleted later."""
        unsynced = self.unsynced
        with unsynced.lock:
            removed = {id(segment) for segment in old}
            remaining = [segment for segment in self._segments if id(segment) not in removed]
            self._segments = sorted([*remaining, *new], key=lambda segment: segment.base_offset)
            self._bases = [segment.base_offset for segment in self._segments]
            self.max_timestamps.clear()
            unsynced.discard(old)
            unsynced.directory_changed = True
            for segment in old:
                segment.file.close_file()
        for segment in old:
            segment.change_suffix(DELETED)
            self.delete_later(segment.file.path(kind) for kind in SUFFIXES)
        for segment in new:
            segment.change_suffix("")

    def delete_later(self, paths: Iterable[str]) -> None:
        """Delete files, which were renamed already, after file.delete.delay.ms."""
        delete_ms = self._context.clock.wall_ms() + self._config.file_delete_delay_ms
        self.deletions.extend((delete_ms, path) for path in paths)

    def take_due_deletions(self, now_ms: int) -> list[str]:
        """The files whose delay has passed. The caller deletes them, if it likes in another thread."""
        # A time beyond this can only come from a clock that was set back.
        latest = now_ms + self._config.file_delete_delay_ms
        due = [path for moment, path in self.deletions if not now_ms < moment <= latest]
        if due:
            self.deletions = [(moment, path) for moment, path in self.deletions if now_ms < moment <= latest]
        return due

    # Truncating

    def truncate_to(self, offset: int) -> None:
        """Drop the batch that holds `offset` and all after it; `offset` is not below the first segment.

        Later segments are removed, and the segment that holds `offset` becomes the active one and is cut. Cost: the
        indices of that segment are loaded, or rebuilt from its batches if they are corrupt.
        """
        self.remove([segment for segment in self._segments if segment.base_offset > offset])
        unsynced = self.unsynced
        with unsynced.lock:
            unsynced.truncations += 1
            self.max_timestamps.clear()
            active = self._segments[-1]
            unsynced.discard([active])
            if active.file.sealed:
                self._activate(active)
            self.active = active
            active.truncate_to(offset)
            self.end_offset = max(active.indices.next_offset(), active.base_offset)
            self.cleaned_to = min(self.cleaned_to, self.end_offset)
            active.cover_tail(active.file.size, self.end_offset)

    def _activate(self, segment: Segment) -> None:
        try:
            segment.activate()
        except CorruptIndexError:
            segment.indices.rebuild(self._config.index_interval_bytes)
            segment.activate()

    def restart_at(self, offset: int) -> None:
        """Drop every segment and continue with an empty one at `offset`."""
        context = self._context
        if not self.has_files:
            self.active.file.create_planned()
        self.remove(list(self._segments))
        with self.unsynced.lock:
            self.unsynced.truncations += 1
            segment = Segment.create(context.files, context.path, offset, context.open_files, context.clock.wall_ms())
            self._segments, self._bases, self.active = [segment], [offset], segment
            self.max_timestamps.clear()
            self.unsynced.directory_changed = True
            self.end_offset = offset

    # Closing

    def seal_for_close(self, snapshot_path: str | None) -> None:
        """Write out indices and leave the active segment and the producer snapshot to the final flush."""
        if snapshot_path is not None:
            self.unsynced.paths.append(snapshot_path)
        for segment in self._segments:
            segment.indices.transactions.restore()
        active = self.active
        active.seal()
        active.file.evictable = False
        active.file.open()
        self.unsynced.segments.append(active)

    def close(self) -> None:
        """Close all files without writing; a flush that runs in another thread stops at its next step."""
        with self.unsynced.lock:
            self._context.closed = True
            # The files at this path may soon be another topic's: no late append or task may create them.
            self.active.file.to_create = False
            for segment in self._segments:
                segment.file.close_file()
