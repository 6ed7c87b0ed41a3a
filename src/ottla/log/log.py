"""`Log`: the batches of one partition on disk. Appends go to the end, reads go anywhere, both ends can be cut.

Contract. One thread (the broker's event loop) calls everything; only `flush` may run in another thread. What
`append_as_leader` returned is in the operating system's hands. It is on disk once `flushed_offset` has passed it:
call `flush` before promising more. The owner sets `high_watermark`, which bounds deletion and compaction. An OSError
takes the whole log directory offline; its logs then raise KAFKA_STORAGE_ERROR. Only a shortage of descriptors or
memory raises `ShortageError` instead, and the log is as before.

Duties of the owner: `flush` when `needs_flush` says so, `delete_old_segments` and `take_due_deletions` from time to
time, `close`.

A follower appends with `follower.append_as_follower`.

Parts: `SegmentList` has the files, `Durability` the flush and the recovery point, `ProducerState` the producers,
`LeaderEpochs` the epochs. They do not know each other, except that a flush reads the segment list; `Log` keeps them
in step.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.durability import Durability
from ottla.log.epochs import LeaderEpochs
from ottla.log.index import CorruptIndexError
from ottla.log.lookup import collect_aborted, find_max_timestamp, find_timestamp, learn_timestamps
from ottla.log.producer_entry import ProducerEntry, WrittenBatch
from ottla.log.producer_recovery import aborted_in, replay_producers
from ottla.log.producer_state import Origin, ProducerState
from ottla.log.repair import repair_segment
from ottla.log.retention import find_expired
from ottla.log.segment import CorruptSegmentError, Segment
from ottla.log.segment_file import TornSegmentError
from ottla.log.segment_list import SegmentList
from ottla.log.slices import FileSlice
from ottla.log.txn_index import AbortedTransaction
from ottla.records import BatchHeader, Buffer, patch
from ottla.records.batch import LOG_APPEND_TIME

logger = logging.getLogger(__name__)

_REPAIR_INTERVAL_MS = 60_000

T = TypeVar("T")
# Creates a named tuple in half the time of its constructor.
_new_tuple = tuple.__new__


class AppendInfo(NamedTuple):
    """Where a batch was written. `log_append_time_ms` is -1 unless the topic uses LogAppendTime."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Log:
    """Log start <= last stable offset <= high watermark <= log end. `flushed_offset` is the recovery point."""

    def __init__(
        self,
        context: LogContext,
        config: LogConfig,
        segments: SegmentList,
        producers: ProducerState,
        epochs: LeaderEpochs,
        durability: Durability,
    ) -> None:
        """For `ottla.log.recovery`, which sets the log start offset and the high watermark afterwards."""
        self.topic_partition = context.topic_partition
        self.topic_id = ZERO_UUID
        self.directory = context.path
        self.log_directory = context.log_directory
        self.files = context.files
        self.open_files = context.open_files
        self.config = config
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.durability = durability
        self.log_start_offset = segments[0].base_offset
        self._high_watermark = self.log_start_offset
        self.context = context
        self._prefix = f"[UnifiedLog partition={context.topic_partition}, dir={context.log_directory.path}]"

    def __repr__(self) -> str:
        return f"Log(dir={self.directory}, partition={self.topic_partition})"

    def reconfigure(self, config: LogConfig) -> None:
        """Use a changed configuration from the next append on."""
        self.config = config
        self.segments.reconfigure(config)
        self.durability.reconfigure(config)
        self.producers.expiration_ms = config.producer_id_expiration_ms

    # State

    @property
    def closed(self) -> bool:
        """Whether the log was closed or its partition deleted."""
        return self.context.closed

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.segments.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk."""
        return self.durability.flushed_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is committed. Set by the owner; a value outside of the log is clamped to it."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        if offset > self.segments.end_offset:
            offset = self.segments.end_offset
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
        if unstable is None:
            return self._high_watermark
        # The first records of an open transaction may have been deleted.
        return min(max(unstable, self.log_start_offset), self._high_watermark)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    def active_producers(self) -> list[ProducerEntry]:
        """The state of each producer id, for DescribeProducers."""
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
        """Append one validated batch at the next offsets.

        Base offset and leader epoch are written into `buffer`. A batch that an idempotent producer resends is not
        written again: its old offsets are returned with `duplicate`. Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, RECORD_LIST_TOO_LARGE,
        KAFKA_STORAGE_ERROR.
        """
        if not self.log_directory.online:
            self.context.raise_offline()
        segments = self.segments
        first = segments.end_offset
        last = first + header.last_offset_delta
        marker = None
        has_producer = header.producer_id >= 0
        if has_producer:
            admitted = self.producers.admit(buffer, header, origin, self.topic_partition)
            if isinstance(admitted, WrittenBatch):
                stamped = admitted.timestamp if header.is_log_append_time else -1
                return AppendInfo(admitted.first_offset, admitted.last_offset, stamped, self.log_start_offset, True)
            marker = admitted
        size = len(buffer)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"A batch of {size} bytes exceeds segment.bytes {self.config.segment_bytes}",
            )
        patch(buffer, 0, first, leader_epoch)
        timestamp = header.max_timestamp
        try:
            if segments.must_roll(size, last, timestamp, now_ms):
                self._roll(now_ms)
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, first)
            segments.append(buffer, last, timestamp)
            if has_producer:
                self.producers.record(header, marker, first, segments.active.indices.transactions)
        except OSError as error:
            self.context.fail(error, "append to")
        stamped = timestamp if header.attributes & LOG_APPEND_TIME else -1
        return _new_tuple(AppendInfo, (first, last, stamped, self.log_start_offset, False))

    def roll(self, now_ms: int | None = None, offset: int | None = None) -> Segment:
        """Seal the active segment and start a new one at the end of the log; an empty active segment stays.

        With `offset`, the new one starts there, after a gap that the next batch of the leader has before it.
        Raises ShortageError, and the log is as before; KafkaError(KAFKA_STORAGE_ERROR) if the disk fails.
        """
        try:
            return self._roll(self.context.clock.wall_ms() if now_ms is None else now_ms, offset)
        except OSError as error:
            self.context.fail(error, "roll")

    def _roll(self, now_ms: int, offset: int | None = None) -> Segment:
        old = self.segments.active
        offset = self.segments.end_offset if offset is None else offset
        if old.file.size == 0 and old.base_offset == offset:
            return old
        clock = self.context.clock
        started_ms = clock.monotonic_ms()
        snapshot = self.producers.take_snapshot(offset)
        snapshot_ms = clock.monotonic_ms()
        new = self.segments.roll(now_ms, snapshot, offset)
        logger.info(
            "[LocalLog partition=%s, dir=%s] Rolled new log segment at offset %d in %d ms.",
            self.topic_partition, self.directory, offset, clock.monotonic_ms() - started_ms,
        )  # fmt: skip
        if snapshot is not None:
            logger.info(
                "[ProducerStateManager partition=%s] Wrote producer snapshot at offset %d with %d producer ids"
                " in %d ms.",
                self.topic_partition, offset, len(self.producers.entries), snapshot_ms - started_ms,
            )  # fmt: skip
        return new

    # Reading

    def read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True) -> Buffer:
        """The result of `look_up`, read into memory."""
        found = self.look_up(offset, max_bytes, upper_bound, min_one_batch)
        return found.take(len(found)) if isinstance(found, FileSlice) else found

    def look_up(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True) -> Buffer | FileSlice:
        """Whole batches of one segment, from the batch that holds `offset` on; a large result is not read yet.

        Only batches that end below `upper_bound` (exclusive), at most `max_bytes` of them, but at least one batch if
        `min_one_batch`. Empty at the end of the log. A corrupt index is rebuilt, then the read is retried once.
        Raises KafkaError(OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR).
        """
        if not self.log_directory.online:
            self.context.raise_offline()
        end = self.segments.end_offset
        if offset > end or offset < self.log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} of {self.topic_partition} is not within {self.log_start_offset} and {end}",
            )
        upper_bound = min(upper_bound, end)
        if offset >= upper_bound:
            return b""
        try:
            return self.segments.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch)
        except (CorruptIndexError, TornSegmentError) as error:
            self._repair(offset, error)
        except OSError as error:
            self.context.fail(error, "read from")
        try:
            return self.segments.read(offset, max_bytes, upper_bound, min_one_batch=min_one_batch)
        except (CorruptIndexError, TornSegmentError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is corrupt: {error}") from error
        except OSError as error:
            self.context.fail(error, "read from")

    def _repair(self, offset: int, problem: Exception) -> None:
        """Repair the segment in which a read of `offset` failed.

        Corrupt frames and offsets are corrected (see `repair`), both indices are rebuilt from the batches, and the
        index of aborted transactions is rebuilt if it is corrupt. Cost: one read of the segment, at most once in
        `_REPAIR_INTERVAL_MS`: a corruption that a repair cannot fix must not be read for every request.
        """
        segments, context = self.segments, self.context
        i, now_ms = segments.index_of_read(offset), context.clock.monotonic_ms()
        segment, indices = segments[i], segments[i].indices
        if segment.repaired_ms is not None and now_ms - segment.repaired_ms < _REPAIR_INTERVAL_MS:
            return
        segment.repaired_ms = now_ms
        if context.closed:  # the files at this path may belong to a new topic of the same name
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} was deleted") from problem
        logger.warning("Rebuilding the indices of %s: %s", segment.file.path(), problem)
        segments.max_timestamps.clear()
        try:
            repair_segment(segment, segments.end_of(i))
            indices.rebuild(self.config.index_interval_bytes)
            if not indices.has_sound_transactions():
                indices.transactions.rewrite(aborted_in(segments[: i + 1], self.producers, context.clock.wall_ms()))
        except OSError as error:
            segment.repaired_ms = None
            context.fail(error, "rebuild the indices of")

    # Queries, answered in lookup.py

    def learn_timestamps(self, limit: int) -> bool:
        """Look up the greatest timestamps of up to `limit` more sealed segments; whether all are known now.

        Otherwise the first query for a timestamp looks up all of them: 15 us each if nothing is read from the disk.
        """
        return self._query(lambda: learn_timestamps(self.segments, limit))

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record of `timestamp` or later that is below `upper_bound`."""
        return self._query(lambda: find_timestamp(self.segments, timestamp, self.log_start_offset, upper_bound))

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp; None in an empty log."""
        return self._query(lambda: find_max_timestamp(self.segments))

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record; -1 if it is unknown."""
        return self.epochs.latest

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the greatest epoch that is not above `epoch`; (-1, -1) if unknown."""
        return self.epochs.end_of(epoch, self.log_end_offset)

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, upper)."""
        return self._query(lambda: collect_aborted(self.segments, start, upper))

    def _query(self, query: Callable[[], T]) -> T:
        """Run a query; repair each corrupt segment that it finds once, then retry."""
        self.context.check_online()
        repaired = set()
        while True:
            try:
                return query()
            except CorruptSegmentError as error:
                base_offset, problem = error.segment.base_offset, error
            except OSError as error:
                self.context.fail(error, "read from")
            if base_offset in repaired:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is corrupt: {problem}")
            repaired.add(base_offset)
            self._repair(base_offset, problem)

    # Cutting the start

    def advance_start(self, offset: int, reason: str) -> bool:
        """Move the log start to `offset`, which is not above the high watermark; whether that is a change."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        logger.info("%s Incremented log start offset to %d due to %s", self._prefix, offset, reason)
        self._high_watermark = max(self._high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_high_watermark(offset)
        return True

    def delete_records_before(self, offset: int, reason: str = "client delete records request") -> int:
        """Make records below `offset` unreadable (-1: below the high watermark); return the new log start offset.

        `delete_old_segments` frees their space. Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark.
        """
        self.context.check_online()
        if offset == -1:
            offset = self._high_watermark
        if offset < 0 or offset > self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete records of {self.topic_partition} before {offset}: the high watermark is"
                f" {self._high_watermark}",
            )
        self.advance_start(offset, reason)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Delete the segments that retention and the log start allow; return how many."""
        self.context.check_online()
        try:
            reasons = find_expired(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self._high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
            )
            if reasons:
                self._delete_first(reasons)
        except OSError as error:
            self.context.fail(error, "delete old segments of")
        return len(reasons)

    def _delete_first(self, reasons: list[str]) -> None:
        """Delete the first segments, one for each reason. The log start moves first: a reader must not find a gap."""
        count = len(reasons)
        expired = self.segments[:count]
        for segment, reason in zip(expired, reasons, strict=True):
            logger.info("%s Deleting segment %s due to %s", self._prefix, segment, reason)
        if count == len(self.segments):
            self.roll()
        self.advance_start(self.segments[count].base_offset, "segment deletion")
        self.replace_segments(expired, [])

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace `old` segments with sealed `new` ones; delete producer snapshots at base offsets that disappear."""
        self.segments.replace(old, new)
        for base in {segment.base_offset for segment in old} - {segment.base_offset for segment in new}:
            self.producers.drop_snapshot(base)

    # Cutting the end

    def truncate_to(self, offset: int, *, sync: bool = True) -> bool:
        """Drop the batch that holds `offset`, all after it, and what is derived from them; whether there was any.

        Without `sync` the caller calls `flush` before the next append: a power cut must not bring back old batches
        among those in their place. Any error leaves the parts out of step and takes the directory offline.
        """
        self.context.check_online()
        if offset >= self.log_end_offset:
            return False
        logger.info("%s Truncating to offset %d", self._prefix, offset)
        try:
            if offset < self.segments[0].base_offset:
                self.truncate_fully(offset)
            else:
                self._truncate(offset)
        except OSError as error:
            self.log_directory.take_offline(error)
            self.context.fail(error, "truncate")
        if sync:
            self.flush()
        return True

    def _truncate(self, offset: int) -> None:
        removed = [segment.base_offset for segment in self.segments if segment.base_offset > offset]
        self.segments.truncate_to(offset)
        end = self.segments.end_offset
        self.durability.truncated_to(min(offset, end))
        self.log_start_offset = min(self.log_start_offset, end)
        self._high_watermark = min(self._high_watermark, end)
        self.epochs.truncate_from_end(end)
        producers = self.producers
        for base_offset in removed:
            producers.drop_snapshot(base_offset)
        producers.drop_snapshots_above(end)
        producers.load_newest(self.segments[0].base_offset, self.context.clock.wall_ms())
        replay_producers(self.segments, producers, end)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and continue at `offset`."""
        logger.info("%s Truncate and start at offset %d", self._prefix, offset)
        self.segments.restart_at(offset)
        self.durability.restarted_at(offset)
        self.log_start_offset = self._high_watermark = offset
        self.epochs.clear()
        self.producers.restart_at(offset)

    # Durability

    def flush(self) -> int:
        """Make everything appended so far durable; return the new `flushed_offset`. See `Durability.flush`."""
        return self.durability.flush()

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms requires a `flush` now."""
        return self.durability.needs_flush(now_ms)

    def adopt(self, topic_id: Uuid) -> None:
        """Write the topic id to `partition.metadata`, when the log has files; the next `flush` syncs it."""
        self.topic_id = topic_id
        self.durability.sync_later(self.segments.active.file.adopt(topic_id))

    # Closing

    def close(self) -> None:
        """Flush, write indices and a producer snapshot, close the files. The shutdown is clean afterwards."""
        if self.closed:
            return
        if self.finish():
            self.flush()
        self.abandon()

    def finish(self) -> bool:
        """First step of `close`, after the last append; whether a `flush` must follow before `abandon`.

        A log that never had a record needs none: thousands of empty logs must not cost thousands of fsyncs.
        """
        if not self.log_directory.online or self.closed or not self.segments.has_files:
            return False
        try:
            self.segments.seal_for_close(self.producers.take_snapshot(self.log_end_offset))
        except OSError as error:
            self.context.fail(error, "close")
        return self.log_end_offset > 0

    def abandon(self) -> None:
        """Close the files without writing."""
        self.segments.close()
