"""`Durability`: how much of a log is on disk, when it must be flushed, and the flush.

`flush` may run in another thread than everything else. Offsets below `flushed_offset` survive a power cut: this is
the recovery point.
"""

import threading

from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.epochs import LeaderEpochs
from ottla.log.segment import ROLLED, Segment
from ottla.log.segment_file import SUFFIXES, file_name
from ottla.log.segment_list import SegmentList

# The value of flush.messages and flush.ms that disables them.
_NEVER = (1 << 63) - 1


class Durability:
    """The recovery point of one log, and the flush that moves it."""

    def __init__(
        self, context: LogContext, config: LogConfig, segments: SegmentList, epochs: LeaderEpochs, flushed_offset: int
    ) -> None:
        self.flushed_offset = flushed_offset
        self._context = context
        self._segments = segments
        self._unsynced = segments.unsynced
        self._epochs = epochs
        self._flushing = threading.Lock()
        self._flushed_ms = context.clock.wall_ms()
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Use a changed configuration."""
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self._is_required = config.flush_messages < _NEVER or config.flush_ms < _NEVER

    # When to flush

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms requires a `flush` now."""
        if not self._is_required:
            return False
        unflushed = self._segments.end_offset - self.flushed_offset
        if unflushed <= 0:
            return False
        # The lower bound: a clock that was set back must not postpone the flush.
        return unflushed >= self._flush_messages or not 0 <= now_ms - self._flushed_ms < self._flush_ms

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a sealed segment waits for a `flush`, which the owner runs in the background."""
        return bool(self._unsynced.segments)

    @property
    def is_ahead_of_disk(self) -> bool:
        """Whether segments are rolled faster than they are synced, so that appends must wait for a `flush`.

        Unsynced segments keep their descriptors, because a failed write-back is reported to these. Without this limit
        they would use up the descriptors of the process.
        """
        return bool(self._unsynced.segments) and not self._context.open_files.trim()

    # Flushing

    def flush(self) -> int:
        """Make everything appended so far durable; return the new `flushed_offset`.

        Order: the sealed segments and the active one, small files and indices, the leader epochs, then the directory
        and its parent. Only then `flushed_offset` moves to the end offset seen at the start, unless the log was
        truncated meanwhile. The files that the flush takes from `UnsyncedFiles` go back if it fails. Cost: one fsync
        for each segment and small file written since the last flush.

        Raises KafkaError(KAFKA_STORAGE_ERROR) if the disk fails, and takes the directory offline: a failed fsync must
        not be retried. Raises ShortageError if descriptors ran out; a later flush then does everything.
        """
        context, unsynced = self._context, self._unsynced
        with self._flushing:
            context.check_online()
            with unsynced.lock:
                if context.closed or not self._segments.has_files:
                    return self.flushed_offset
                target, truncations = self._segments.end_offset, unsynced.truncations
                sealed = list(unsynced.segments)
                active = self._segments.active
                written = [segment for segment in dict.fromkeys((*sealed, active)) if not segment.file.evictable]
                small, unsynced.paths = unsynced.paths, []
                rolled, unsynced.rolled = unsynced.rolled, []
                sync_directory, unsynced.directory_changed = unsynced.directory_changed, False
            # Recovery leaves thousands of closed segments. An earlier process wrote them, so a new descriptor will do.
            paths = [*small, *(segment.file.path() for segment in sealed if segment.file.evictable)]
            try:
                self._sync(written, sealed, paths, sync_directory=sync_directory)
                self._forget_rolls(rolled)
            except OSError as error:
                if not self._give_back(small, rolled, sync_directory=sync_directory):
                    return self.flushed_offset
                context.fail(error, "flush")
            with unsynced.lock:
                for segment in sealed:
                    segment.file.evictable = True
                    if segment in unsynced.segments:
                        unsynced.segments.remove(segment)
                if truncations == unsynced.truncations:
                    self.flushed_offset = max(self.flushed_offset, target)
                self._flushed_ms = context.clock.wall_ms()
            return self.flushed_offset

    def _give_back(self, small: list[str], rolled: list[int], *, sync_directory: bool) -> bool:
        """Leave what was not synced to the next flush; False if the partition was deleted, its directory renamed."""
        unsynced = self._unsynced
        if self._context.closed:
            return False
        with unsynced.lock:
            unsynced.paths += small
            unsynced.rolled += rolled
            unsynced.directory_changed = unsynced.directory_changed or sync_directory
        return True

    def _sync(self, written: list[Segment], sealed: list[Segment], paths: list[str], *, sync_directory: bool) -> None:
        context = self._context
        files = context.files
        sealed_ids = set(map(id, sealed))
        for segment in written:
            self._sync_segment(segment)
            # A sealed segment may be closed from now on. The active segment keeps its descriptor.
            segment.file.evictable = id(segment) in sealed_ids
        for path in (*paths, *(segment.file.path(kind) for segment in sealed for kind in SUFFIXES[1:])):
            files.fsync_if_there(path)  # without aborted transactions, or if deleted meanwhile, a file is missing
        if context.closed:  # the path may belong to a new topic of the same name
            return
        self._epochs.write()
        if sync_directory:
            files.fsync_directory(context.path)
            files.fsync_directory(context.log_directory.path)  # the partition's directory may be new

    def _forget_rolls(self, rolled: list[int]) -> None:
        # Before the recovery point moves, and with it the end of the compactable part: compaction syncs the directory
        # before it leaves gaps between segments.
        context = self._context
        for offset in rolled:
            if not context.closed:
                context.files.unlink(f"{context.path}/{file_name(offset, ROLLED)}")

    def _sync_segment(self, segment: Segment) -> None:
        # One duplicate at a time: a log that rolls fast has hundreds of segments to sync.
        files = self._context.files
        with self._unsynced.lock:
            if segment.file.fd < 0:  # removed or truncated meanwhile
                return
            fd = files.dup(segment.file.fd)
        try:
            files.fsync(fd)
        finally:
            files.close(fd)

    # Changes from outside

    def sync_later(self, path: str) -> None:
        """Leave a small file that was just created to the next flush."""
        with self._unsynced.lock:
            self._unsynced.paths.append(path)
            self._unsynced.directory_changed = True

    def sync_segments_later(self, segments: list[Segment]) -> None:
        """Leave sealed segments to the next flush."""
        with self._unsynced.lock:
            self._unsynced.segments.extend(segments)

    def truncated_to(self, offset: int) -> None:
        """Lower the recovery point after a truncation to `offset`."""
        with self._unsynced.lock:
            self.flushed_offset = min(self.flushed_offset, offset)

    def restarted_at(self, offset: int) -> None:
        """Set the recovery point of a log that was emptied and starts at `offset`."""
        with self._unsynced.lock:
            self.flushed_offset = offset
