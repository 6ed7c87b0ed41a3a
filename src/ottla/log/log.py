"""`Log`: one partition's batches on disk, appended to at the end, read anywhere, cut at both ends.

Contract. One thread (the broker's loop) calls everything; `flush` alone may run in another thread meanwhile. What
`append_as_leader` returned is in the operating system's hands, and on disk once `flushed_offset` has passed it:
whoever promises more calls `flush` before the promise. `high_watermark` is set by the owner and bounds deletion and
cleaning. An OSError takes the whole directory offline (`Home.fail`); its logs then raise KAFKA_STORAGE_ERROR.

Duties of the owner: `flush` when `needs_flush` says so, `delete_old_segments` and `purge` now and then, `close`.
"""

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, NoReturn, TypeVar
from zlib import crc32

from ottla.common.clock import Clock, SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.epochs import LeaderEpochs
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError
from ottla.log.producers import CompletedTransaction, Marker, ProducerEntry, Producers, WrittenBatch, read_marker
from ottla.log.segment import DELETED, INT32_MAX, SUFFIXES, OpenFiles, Segment, TornSegmentError
from ottla.log.txn_index import AbortedTransaction
from ottla.records import BatchHeader, iter_batches, patch

logger = logging.getLogger(__name__)

T = TypeVar("T")
Origin = Literal["client", "coordinator", "raft", "replication"]
_OFFSET_ENTRY_SIZE = 8
_TIME_ENTRY_SIZE = 12


class AppendInfo(NamedTuple):
    """Where a batch is; `log_append_time_ms` is -1 unless the topic stamps batches itself."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Home:
    """The log directory that a log lives in. `on_failure` is called once, on the thread that met the error."""

    def __init__(self, path: str, files: Files, on_failure: Callable[["Home", OSError], None] | None = None) -> None:
        self.path = path
        self.files = files
        self.online = True
        self._on_failure = on_failure

    def fail(self, error: OSError) -> None:
        """Take the directory offline."""
        if self.online:
            self.online = False
            logger.error("Log directory %s is offline now: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self, error)


class Log:
    """Offsets: log_start_offset <= high_watermark <= log_end_offset; flushed_offset is the recovery point."""

    def __init__(
        self,
        home: Home,
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
        self.home = home
        self.files = home.files
        self.clock: Clock = clock or SystemClock()
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.flushed_offset = flushed_offset
        self.open_files = open_files or OpenFiles()
        self.closed = False
        self._high_watermark = log_start_offset
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
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
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    # What others ask

    @property
    def high_watermark(self) -> int:
        """All below it is committed; set by the owner, kept within the log."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.on_high_watermark(self._high_watermark)

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
    def unflushed_records(self) -> int:
        """Offsets that a power failure may take."""
        return self.log_end_offset - self.flushed_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a sealed segment waits for `flush`; the owner does that in the background."""
        return bool(self._unsynced)

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a `flush` now."""
        unflushed = self.log_end_offset - self.flushed_offset
        if unflushed <= 0:
            return False
        config = self.config
        return unflushed >= config.flush_messages or now_ms - self._flushed_ms >= config.flush_ms

    def reconfigure(self, config: LogConfig) -> None:
        """Follow a changed configuration from the next append on."""
        self.config = config
        self._max_segment_ms = config.max_segment_ms
        self.producers.expiration_ms = config.producer_id_expiration_ms
        self._max_offset_entries = max(config.segment_index_bytes // _OFFSET_ENTRY_SIZE, 1)
        self._max_time_entries = max(config.segment_index_bytes // _TIME_ENTRY_SIZE - 1, 1)

    def active_producers(self) -> list[ProducerEntry]:
        """What is known of each producer id, for DescribeProducers."""
        return list(self.producers.entries.values())

    # Appending

    def append_as_leader(
        self,
        buffer: memoryview | bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = "client",
    ) -> AppendInfo:
        """Append one validated batch, giving it the next offsets.

        Base offset and leader epoch are written into `buffer`. A batch of an idempotent producer that is there
        already is not written again: the old offsets come back with `duplicate`. Raises KafkaError:
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED,
        RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """
        if not self.home.online:
            self._offline()
        first = self.log_end_offset
        last = first + header.last_offset_delta
        marker = None
        if header.producer_id >= 0 and not self.producers.is_next(header):
            if origin == "client" and not header.is_control:
                duplicate = self.producers.duplicate_of(header)
                if duplicate is not None:
                    return self._duplicate(header, duplicate)
            marker = self._check_producer(buffer, header, origin)
        if len(buffer) > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"A batch of {len(buffer)} bytes exceeds segment.bytes {self.config.segment_bytes}",
            )
        patch(buffer, 0, first, leader_epoch)
        try:
            self._write(buffer, header, first, last, now_ms, leader_epoch)
            if header.producer_id >= 0:
                self._note_producer(header, marker, first)
        except OSError as error:
            self._fail(error, "append to")
        return AppendInfo(
            first, last, header.max_timestamp if header.is_log_append_time else -1, self.log_start_offset, False
        )

    def append_as_follower(self, buffer: memoryview | bytearray, now_ms: int) -> int:
        """Append batches that have their offsets and epochs from a leader; the new log end offset.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) if they do not come after what is there, CORRUPT_MESSAGE.
        """
        if not self.home.online:
            self._offline()
        view = memoryview(buffer)
        for position, header in iter_batches(view):
            if header.base_offset < self.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"A batch for {self.topic_partition} begins at {header.base_offset}, before the log's end"
                    f" {self.log_end_offset}",
                )
            batch = view[position : position + header.size]
            marker = read_marker(batch, 0) if header.is_control and header.producer_id >= 0 else None
            try:
                self._write(
                    batch, header, header.base_offset, header.last_offset, now_ms, header.partition_leader_epoch
                )
                if header.producer_id >= 0:
                    self._note_producer(header, marker, header.base_offset)
            except OSError as error:
                self._fail(error, "append to")
        return self.log_end_offset

    def _check_producer(self, buffer: memoryview | bytearray, header: BatchHeader, origin: Origin) -> Marker | None:
        if not header.is_control:
            self.producers.check(header, self.topic_partition, sequences=origin == "client")
            return None
        marker = read_marker(buffer, 0)
        if marker is not None:
            self.producers.check_marker(header, marker.coordinator_epoch, self.topic_partition)
        return marker

    def _duplicate(self, header: BatchHeader, batch: WrittenBatch) -> AppendInfo:
        stamped = batch.timestamp if header.is_log_append_time else -1
        return AppendInfo(batch.first_offset, batch.last_offset, stamped, self.log_start_offset, True)

    def _write(
        self, buffer: memoryview | bytearray, header: BatchHeader, first: int, last: int, now_ms: int, epoch: int
    ) -> None:
        segment = self._active
        timestamp = header.max_timestamp
        if segment.size + len(buffer) > self.config.segment_bytes or self._must_roll(segment, last, timestamp, now_ms):
            segment = self._roll_to(first, now_ms)
        if epoch > self._epoch:
            self.epochs.assign(epoch, first)
            self._epoch = epoch
        try:
            segment.append(buffer, last, timestamp, self.config.index_interval_bytes)
        except OSError:
            self._cut_partial_write(segment)
            raise
        self.log_end_offset = last + 1

    def _must_roll(self, segment: Segment, last: int, timestamp: int, now_ms: int) -> bool:
        if last - segment.base_offset > INT32_MAX:
            return True
        if segment.size == 0:
            return False
        started = segment.first_timestamp
        if started is None:
            started = segment.first_batch_timestamp()
        waited = timestamp - started if started >= 0 else now_ms - segment.created_ms
        config = self.config
        if waited > self._max_segment_ms - (config.segment_jitter_ms and self._jitter(segment)):
            return True
        return (
            segment.offset_index.entries >= self._max_offset_entries
            or segment.time_index.entries >= self._max_time_entries
        )

    def _jitter(self, segment: Segment) -> int:
        # Drawn from the name, so that the same log rolls the same way each time.
        span = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return crc32(f"{self.topic_partition}@{segment.base_offset}".encode()) % max(span, 1)

    def _cut_partial_write(self, segment: Segment) -> None:
        try:
            self.files.truncate(segment.fd, segment.size)
        except OSError as error:
            logger.warning("A partial batch stays at the end of %s until recovery: %s", segment.path(), error)

    def _note_producer(self, header: BatchHeader, marker: Marker | None, offset: int) -> None:
        if not header.is_control:
            self.producers.wrote(header, offset)
        elif marker is not None:
            completed = self.producers.ended(header, marker, offset)
            if completed is not None:
                self._complete(completed)

    def _complete(self, completed: CompletedTransaction) -> None:
        if completed.aborted:
            stable = self.producers.last_stable_offset_after(completed)
            self._active.txn_index.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        self.producers.complete(completed)

    # Reading

    def read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True) -> bytes:
        """Whole batches from the one that holds `offset` on, of one segment.

        Only batches that end below `upper_bound` (exclusive), at most `max_bytes` bytes of them, but one batch in any
        case with `min_one_batch`. Empty at the end of the log. Raises KafkaError(OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR).
        """
        if not self.home.online:
            self._offline()
        end = self.log_end_offset
        if offset > end or offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is not within {self.log_start_offset} and {end}",
            )
        upper_bound = min(upper_bound, end)
        if offset >= upper_bound:
            return b""
        try:
            return self._read(offset, max_bytes, upper_bound, min_one_batch)
        except (CorruptIndexError, TornSegmentError) as error:
            self._repair(offset, error)
        except OSError as error:
            self._fail(error, "read from")
        try:
            return self._read(offset, max_bytes, upper_bound, min_one_batch)
        except (CorruptIndexError, TornSegmentError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is corrupt: {error}") from error
        except OSError as error:
            self._fail(error, "read from")

    def _read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool) -> bytes:
        segment = self._active
        i = len(self._segments) - 1
        if offset < segment.base_offset:
            i = bisect_right(self._bases, offset) - 1
            segment = self._segments[i]
        position = segment.locate(offset)
        while position >= segment.size:  # compaction has left nothing at this offset or after it in the segment
            i += 1
            if i == len(self._segments):
                return b""
            segment = self._segments[i]
            position = segment.locate(offset)
        last = i == len(self._segments) - 1
        segment_end = self.log_end_offset if last else self._bases[i + 1]
        stop = segment.size if upper_bound >= segment_end else segment.locate(upper_bound)
        if stop - position > max_bytes:
            stop = segment.cut(position, position + max_bytes)
            if stop == position and min_one_batch:
                stop = position + segment.batch_size(position)
        return segment.read(position, stop) if stop > position else b""

    def _repair(self, offset: int, problem: Exception) -> None:
        segment = self._segments[max(bisect_right(self._bases, offset) - 1, 0)]
        logger.warning("Rebuilding the indices of %s: %s", segment.path(), problem)
        try:
            segment.rebuild_indices(self.config.index_interval_bytes)
        except OSError as error:
            self._fail(error, "rebuild the indices of")

    # Making durable

    def flush(self) -> int:
        """Make everything appended so far durable; the new `flushed_offset`.

        May be called in another thread than the rest. Raises KafkaError(KAFKA_STORAGE_ERROR) if the disk fails; the
        directory is offline then, for a failed fsync must not be tried again.
        """
        with self._flushing:
            if not self.home.online:
                self._offline()
            with self._lock:
                if self.closed:
                    return self.flushed_offset
                target, truncations = self.log_end_offset, self.truncations
                sealed = list(self._unsynced)
                paths, self._unsynced_paths = self._unsynced_paths, []
                sync_directory, self._directory_changed = self._directory_changed, False
                descriptors = [self.files.dup(segment.fd) for segment in (*sealed, self._active)]
            try:
                self._sync(descriptors, sealed, paths, sync_directory=sync_directory)
            except OSError as error:
                if self._is_closed():  # deleted meanwhile: its directory has another name now
                    return self.flushed_offset
                self._fail(error, "flush")
            finally:
                for fd in descriptors:
                    self.files.close(fd)
            with self._lock:
                for segment in sealed:
                    segment.evictable = True
                    if segment in self._unsynced:
                        self._unsynced.remove(segment)
                if truncations == self.truncations:
                    self.flushed_offset = max(self.flushed_offset, target)
                self._flushed_ms = self.clock.wall_ms()
            return self.flushed_offset

    def _sync(
        self, descriptors: Iterable[int], sealed: list[Segment], paths: list[str], *, sync_directory: bool
    ) -> None:
        for fd in descriptors:
            self.files.fsync(fd)
        for path in (*paths, *(segment.path(kind) for segment in sealed for kind in SUFFIXES[1:])):
            try:
                fd = self.files.open(path, read_only=True)
            except FileNotFoundError:  # no aborted transactions, or deleted meanwhile
                continue
            try:
                self.files.fsync(fd)
            finally:
                self.files.close(fd)
        self.epochs.write()
        if sync_directory:
            self.files.fsync_directory(self.directory)

    def note_unsynced(self, segments: list[Segment]) -> None:
        """Sealed segments that the next `flush` must sync."""
        with self._lock:
            self._unsynced.extend(segments)

    # Segments

    def roll(self, now_ms: int | None = None) -> Segment:
        """Seal the active segment and begin a new one at the end of the log; nothing if it is empty."""
        try:
            return self._roll_to(self.log_end_offset, self.clock.wall_ms() if now_ms is None else now_ms)
        except OSError as error:
            self._fail(error, "roll")

    def _roll_to(self, offset: int, now_ms: int) -> Segment:
        old = self._active
        if old.size == 0 and old.base_offset == offset:
            return old
        self.producers.end_offset = self.log_end_offset
        snapshot = self.producers.take_snapshot()
        new = Segment.create(self.files, self.directory, offset, self.open_files, now_ms)
        with self._lock:
            old.seal()
            self._unsynced.append(old)
            if snapshot is not None:
                self._unsynced_paths.append(snapshot)
            self._directory_changed = True
            self._segments.append(new)
            self._bases.append(offset)
            self._active = new
        return new

    def remove_segments(self, doomed: list[Segment]) -> None:
        """Take segments out of the log; their files are renamed now and removed after file.delete.delay.ms."""
        if not doomed:
            return
        with self._lock:
            gone = {id(segment) for segment in doomed}
            self._segments = [segment for segment in self._segments if id(segment) not in gone]
            self._bases = [segment.base_offset for segment in self._segments]
            self._unsynced = [segment for segment in self._unsynced if id(segment) not in gone]
            self._directory_changed = True
            for segment in doomed:
                segment.close_file()
        moment = self.clock.wall_ms() + self.config.file_delete_delay_ms
        for segment in doomed:
            segment.change_suffix(DELETED)
            self._doomed.extend((moment, segment.path(kind)) for kind in SUFFIXES)

    def adopt_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Put sealed segments in the place of `old` ones, which are removed (the cleaner's swap)."""
        with self._lock:
            gone = {id(segment) for segment in old}
            kept = [segment for segment in self._segments if id(segment) not in gone]
            self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
            self._bases = [segment.base_offset for segment in self._segments]
            self._unsynced = [segment for segment in self._unsynced if id(segment) not in gone]
            self._directory_changed = True
            for segment in old:
                segment.close_file()
        moment = self.clock.wall_ms() + self.config.file_delete_delay_ms
        for segment in old:
            segment.change_suffix(DELETED)
            self._doomed.extend((moment, segment.path(kind)) for kind in SUFFIXES)
        for segment in new:
            segment.change_suffix("")

    def doom(self, path: str) -> None:
        """Have a file (renamed already) removed after file.delete.delay.ms."""
        self._doomed.append((self.clock.wall_ms() + self.config.file_delete_delay_ms, path))

    def purge(self, now_ms: int) -> list[str]:
        """The files whose time has come; the caller unlinks them, in another thread if it likes."""
        due = [path for moment, path in self._doomed if moment <= now_ms]
        if due:
            self._doomed = [(moment, path) for moment, path in self._doomed if moment > now_ms]
        return due

    # Cutting

    def advance_start(self, offset: int) -> bool:
        """Let the log begin at `offset` (not beyond the high watermark); whether that is a change."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self._high_watermark = max(self._high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_high_watermark(offset)
        return True

    def delete_records_before(self, offset: int) -> int:
        """Make records below `offset` unreadable (-1: below the high watermark); the new log start offset.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark. Their space comes back with
        `delete_old_segments`.
        """
        if not self.home.online:
            self._offline()
        if offset == -1:
            offset = self._high_watermark
        if offset < 0 or offset > self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete records of {self.topic_partition} before {offset}: the high watermark is"
                f" {self._high_watermark}",
            )
        self.advance_start(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Remove what retention and the log start allow; how many segments went."""
        from ottla.log.retention import apply_retention

        if not self.home.online:
            self._offline()
        try:
            return apply_retention(self, now_ms)
        except OSError as error:
            self._fail(error, "delete old segments of")

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on (the whole batch that holds it); whether that was anything."""
        if not self.home.online:
            self._offline()
        if offset >= self.log_end_offset:
            return False
        try:
            if offset < self._bases[0]:
                self.truncate_fully(offset)
            else:
                self._truncate(offset)
        except OSError as error:
            self._fail(error, "truncate")
        return True

    def _truncate(self, offset: int) -> None:
        self.remove_segments([segment for segment in self._segments if segment.base_offset > offset])
        with self._lock:
            self.truncations += 1
            active = self._segments[-1]
            self._unsynced = [segment for segment in self._unsynced if segment is not active]
            if active.sealed:
                _activate(active, self.config.index_interval_bytes)
            self._active = active
            active.truncate_to(offset)
            self.log_end_offset = max(active.next_offset(), self._bases[-1])
            active.cover_tail(active.size, self.log_end_offset)
            self._after_truncation(min(offset, self.log_end_offset))
        self._reload_producers()

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and go on at `offset`."""
        self.remove_segments(list(self._segments))
        with self._lock:
            self.truncations += 1
            segment = Segment.create(self.files, self.directory, offset, self.open_files, self.clock.wall_ms())
            self._segments, self._bases, self._active = [segment], [offset], segment
            self._directory_changed = True
            self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
            self._high_watermark = offset
            self.epochs.clear()
            self._epoch = -1
        for snapshot in list(self.producers.snapshots):
            self.producers.drop_snapshot(snapshot)
        self.producers.reset(offset)
        self.producers.snapshot_offset = offset

    def _after_truncation(self, offset: int) -> None:
        self.flushed_offset = min(self.flushed_offset, offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._high_watermark = min(self._high_watermark, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)
        self._epoch = self.epochs.latest

    def _reload_producers(self) -> None:
        producers = self.producers
        for snapshot in list(producers.snapshots):
            if snapshot > self.log_end_offset:
                producers.drop_snapshot(snapshot)
        producers.load_newest(self.log_start_offset, self.clock.wall_ms())
        replay_producers(self._segments, producers, self.log_end_offset)

    # Questions answered in lookup.py

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record of `timestamp` or later that is below `upper_bound`."""
        from ottla.log.lookup import find_timestamp

        return self._ask(lambda: find_timestamp(self, timestamp, upper_bound))

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp; None in an empty log."""
        from ottla.log.lookup import find_max_timestamp

        return self._ask(lambda: find_max_timestamp(self))

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset): the greatest epoch not above the asked one and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_of(epoch, self.log_end_offset)

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, upper)."""
        from ottla.log.lookup import collect_aborted

        return self._ask(lambda: collect_aborted(self, start, upper))

    def _ask(self, question: Callable[[], T]) -> T:
        if not self.home.online:
            self._offline()
        try:
            return question()
        except (CorruptIndexError, TornSegmentError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is corrupt: {error}") from error
        except OSError as error:
            self._fail(error, "read from")

    # The end

    def close(self) -> None:
        """Flush, write indices and a producer snapshot, close the files. Then a clean-shutdown file tells the truth."""
        if self.closed:
            return
        if self.home.online:
            try:
                self.producers.end_offset = self.log_end_offset
                snapshot = self.producers.take_snapshot()
                if snapshot is not None:
                    self._unsynced_paths.append(snapshot)
                self._active.seal()
                self._active.evictable = False
                self._active.open_file()
                self._unsynced.append(self._active)
            except OSError as error:
                self._fail(error, "close")
            self.flush()
        self.abandon()

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
            f"{self.topic_partition} is in the log directory {self.home.path}, which is offline",
        )

    def _fail(self, error: OSError, doing: str) -> NoReturn:
        self.home.fail(error)
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot {doing} {self.topic_partition} in {self.home.path}: {error}"
        ) from error


def replay_producers(segments: Iterable[Segment], producers: Producers, end_offset: int) -> None:
    """Bring the producers' state from its `end_offset` up to `end_offset` with the batches in between."""
    for segment in segments:
        start = producers.end_offset
        if segment.base_offset >= end_offset:
            break
        position = segment.locate(start) if start > segment.base_offset else 0
        for _, data, header in segment.batches(position):
            if header.base_offset >= end_offset:
                break
            if header.base_offset >= start:
                completed = producers.replay(data, 0, header)
                if completed is not None:
                    producers.complete(completed)
    producers.end_offset = max(producers.end_offset, end_offset)


def _activate(segment: Segment, index_interval: int) -> None:
    try:
        segment.activate()
    except CorruptIndexError:
        segment.rebuild_indices(index_interval)
        segment.activate()
