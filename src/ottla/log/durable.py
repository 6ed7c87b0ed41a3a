"""What a log is made of, and how it becomes durable: its state, `flush`, `close`, and what a failing disk means.

Contract. `flush` may run in another thread than all the rest; `_lock` guards the descriptors and what waits for a
flush. Offsets below `flushed_offset` are on disk. An OSError takes the whole directory offline
(`LogDirectory.fail`), unless it is a shortage of descriptors or memory: that fails the operation with
`ShortageError`, which changed nothing.
"""

import threading
from typing import NoReturn

from ottla.common.clock import Clock, SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.common.shortage import ShortageError, is_shortage
from ottla.log.checkpoints import write_topic_id
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.open_files import OpenFiles
from ottla.log.producers import ProducerEntry, Producers
from ottla.log.segment import SUFFIXES, Segment

# What flush.messages and flush.ms are if nobody sets them.
_NEVER = (1 << 63) - 1


class DurableLog:
    """Offsets: log_start_offset <= high_watermark <= log_end_offset; flushed_offset is the recovery point."""

    def __init__(
        self,
        log_directory: LogDirectory,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        segments: list[Segment],
        producers: Producers,
        epochs: LeaderEpochs,
        log_start_offset: int,
        log_end_offset: int,
        flushed_offset: int,
        topic_id: Uuid = ZERO_UUID,
        clock: Clock | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """For `ottla.log.recovery.open_log`, which finds out all this; `segments` end with the active one."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = directory
        self.log_directory = log_directory
        self.files = log_directory.files
        self.clock: Clock = clock or SystemClock()
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.flushed_offset = flushed_offset
        self.open_files = open_files or OpenFiles()
        self.closed = False
        self.cleaned_to = 0
        """Below, compaction may have left gaps between offsets."""
        self._high_watermark = log_start_offset
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        # Of the first sealed segments: the greatest timestamp up to each one's end. See lookup.py.
        self._maxima: list[int] = []
        self._active = segments[-1]
        self._epoch = epochs.latest
        self._flushed_ms = self.clock.wall_ms()
        # (moment, path) of files to be removed.
        self._doomed: list[tuple[int, str]] = []
        # Guards descriptors and what is below against `flush` in another thread.
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._unsynced: list[Segment] = []
        self._unsynced_paths: list[str] = []
        self._directory_changed = True
        self.truncations = 0
        self.reconfigure(config)

    def __repr__(self) -> str:
        return f"Log(dir={self.directory}, partition={self.topic_partition})"

    # What others ask

    @property
    def high_watermark(self) -> int:
        """All below it is committed; set by the owner, kept within the log."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self._high_watermark = offset
        producers = self.producers
        if producers.undecided:
            producers.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records may read up to here."""
        unstable = self.producers.first_unstable_offset
        return self._high_watermark if unstable is None else min(unstable, self._high_watermark)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 if there is none."""
        return self.epochs.latest

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last one is active."""
        return list(self._segments)

    @property
    def active_segment(self) -> Segment:
        """The one that is appended to."""
        return self._active

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a sealed segment waits for `flush`; the owner does that in the background."""
        return bool(self._unsynced)

    @property
    def is_ahead_of_disk(self) -> bool:
        """Whether segments are rolled faster than they are synced, so that appends should wait for a `flush`.

        Their descriptors stay open until then, since a failure to write them back is reported to these. That must
        not take every descriptor of the process.
        """
        return bool(self._unsynced) and not self.open_files.trim()

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a `flush` now."""
        if not self._flushes:
            return False
        unflushed = self.log_end_offset - self.flushed_offset
        if unflushed <= 0:
            return False
        config = self.config
        # A clock that was set back must not put it off.
        return unflushed >= config.flush_messages or not 0 <= now_ms - self._flushed_ms < config.flush_ms

    def reconfigure(self, config: LogConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self.config = config
        self._max_segment_ms = config.max_segment_ms
        self._flushes = config.flush_messages < _NEVER or config.flush_ms < _NEVER
        self.producers.expiration_ms = config.producer_id_expiration_ms
        self._max_offset_entries = max(config.segment_index_bytes // OffsetIndex.entry.size, 1)
        self._max_time_entries = max(config.segment_index_bytes // TimeIndex.entry.size - 1, 1)

    def active_producers(self) -> list[ProducerEntry]:
        """What is known of each producer id, for DescribeProducers."""
        return list(self.producers.entries.values())

    # Making durable

    def flush(self) -> int:
        """Make everything appended so far durable; the new `flushed_offset`.

        May be called in another thread than the rest. Raises KafkaError(KAFKA_STORAGE_ERROR) if the disk fails; the
        directory is offline then, for a failed fsync must not be tried again. Raises ShortageError if there was no
        descriptor for it; a later flush does it all.
        """
        with self._flushing:
            if not self.log_directory.online:
                self._offline()
            with self._lock:
                if self.closed:
                    return self.flushed_offset
                target, truncations = self.log_end_offset, self.truncations
                sealed = list(self._unsynced)
                written = [segment for segment in dict.fromkeys((*sealed, self._active)) if not segment.evictable]
                named, self._unsynced_paths = self._unsynced_paths, []
                sync_directory, self._directory_changed = self._directory_changed, False
            # A recovery leaves thousands, closed: an earlier process wrote them, and any descriptor will do.
            paths = [*named, *(segment.path() for segment in sealed if segment.evictable)]
            try:
                self._sync(written, sealed, paths, sync_directory=sync_directory)
            except OSError as error:
                if self._is_closed():  # deleted meanwhile: its directory has another name now
                    return self.flushed_offset
                with self._lock:
                    self._unsynced_paths += named
                    self._directory_changed = self._directory_changed or sync_directory
                self._fail(error, "flush")
            with self._lock:
                for segment in sealed:
                    segment.evictable = True
                    if segment in self._unsynced:
                        self._unsynced.remove(segment)
                if truncations == self.truncations:
                    self.flushed_offset = max(self.flushed_offset, target)
                self._flushed_ms = self.clock.wall_ms()
            return self.flushed_offset

    def _sync(self, written: list[Segment], sealed: list[Segment], paths: list[str], *, sync_directory: bool) -> None:
        sealed_ids = set(map(id, sealed))
        for segment in written:
            self._sync_segment(segment)
            # Now its descriptor may be closed. The active one, which is not among the sealed ones, keeps its own.
            segment.evictable = id(segment) in sealed_ids
        for path in (*paths, *(segment.path(kind) for segment in sealed for kind in SUFFIXES[1:])):
            self.files.fsync_if_there(path)  # no aborted transactions, or deleted meanwhile
        if self._is_closed():  # deleted meanwhile: its name may be another topic's now
            return
        self.epochs.write()
        if sync_directory:
            self.files.fsync_directory(self.directory)
            self.files.fsync_directory(self.log_directory.path)  # where the directory itself may be new

    def _sync_segment(self, segment: Segment) -> None:
        # One descriptor at a time: a log that rolls fast has hundreds of segments to sync.
        with self._lock:
            if segment.fd < 0:  # removed or truncated meanwhile
                return
            fd = self.files.dup(segment.fd)
        try:
            self.files.fsync(fd)
        finally:
            self.files.close(fd)

    def adopt(self, topic_id: Uuid) -> None:
        """Write down which topic this is a partition of; on disk with the next `flush`, as records are."""
        self.topic_id = topic_id
        with self._lock:
            self._unsynced_paths.append(write_topic_id(self.files, self.directory, topic_id))
            self._directory_changed = True

    def note_unsynced(self, segments: list[Segment]) -> None:
        """Sealed segments that the next `flush` must sync."""
        with self._lock:
            self._unsynced.extend(segments)

    # The end

    def close(self) -> None:
        """Flush, write indices and a producer snapshot, close the files. Then a clean-shutdown file tells the truth."""
        if self.closed:
            return
        if self.finish():
            self.flush()
        self.abandon()

    def finish(self) -> bool:
        """The first step of `close`: nothing more is appended. Whether a `flush` must follow before `abandon`."""
        if self.log_directory.online and not self.closed:
            try:
                self.producers.end_offset = self.log_end_offset
                snapshot = self.producers.take_snapshot()
                if snapshot is not None:
                    self._unsynced_paths.append(snapshot)
                for segment in self._segments:
                    segment.txn_index.restore()
                self._active.seal()
                self._active.evictable = False
                self._active.open_file()
                self._unsynced.append(self._active)
            except OSError as error:
                self._fail(error, "close")
            # A log that never held a record has nothing to lose: thousands of them must not cost thousands of fsyncs.
            return self.log_end_offset > 0
        return False

    def abandon(self) -> None:
        """Close the files without writing anything more."""
        with self._lock:
            self.closed = True
            for segment in self._segments:
                segment.close_file()

    # Failing

    def _is_closed(self) -> bool:
        return self.closed  # asked again, because another thread may have changed it

    def _offline(self) -> NoReturn:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic_partition} is in the log directory {self.log_directory.path}, which is offline",
        )

    def _fail(self, error: OSError, doing: str) -> NoReturn:
        # One that was deleted meanwhile has its files elsewhere, which says nothing of the disk.
        if not self._is_closed():
            self.log_directory.fail(error)
        problem = f"Cannot {doing} {self.topic_partition} in {self.log_directory.path}: {error}"
        if is_shortage(error):
            raise ShortageError(problem) from error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem) from error
