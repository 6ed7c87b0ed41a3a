"""`Log`: one partition's batches on disk, appended to at the end, read anywhere, cut at both ends.

Contract. One thread (the broker's loop) calls everything; `flush` alone may run in another thread meanwhile. What
`append_as_leader` returned is in the operating system's hands, and on disk once `flushed_offset` has passed it:
whoever promises more calls `flush` before the promise. `high_watermark` is set by the owner and bounds deletion and
cleaning. An OSError takes the whole directory offline (`LogDirectory.fail`); its logs then raise KAFKA_STORAGE_ERROR.
Only a shortage of descriptors or memory does not: it raises `ShortageError`, and the log is as it was.

Duties of the owner: `flush` when `needs_flush` says so, `delete_old_segments` and `purge` now and then, `close`.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple, NoReturn, TypeVar
from zlib import crc32

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.index import CorruptIndexError
from ottla.log.producers import CompletedTransaction, Marker, Producers, WrittenBatch, read_marker
from ottla.log.repair import repair
from ottla.log.segment import INT32_MAX, HarmedSegmentError, Segment, TornSegmentError
from ottla.log.segmented import SegmentedLog, find_aborted
from ottla.log.slices import FileSlice
from ottla.log.txn_index import AbortedTransaction
from ottla.records import HEADER_SIZE, BatchHeader, Buffer, check_crc, patch, read_header
from ottla.records.batch import LOG_APPEND_TIME

logger = logging.getLogger(__name__)

_REPAIR_AGAIN_MS = 60_000
# From so much on, what is asked for is read when it is sent.
UNREAD_BYTES = 64 * 1024

T = TypeVar("T")
_new_tuple = tuple.__new__  # a named one costs half as much so
Origin = Literal["client", "coordinator", "raft", "replication"]


class AppendInfo(NamedTuple):
    """Where a batch is; `log_append_time_ms` is -1 unless the topic stamps batches itself."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Log(SegmentedLog):
    """Offsets: log_start_offset <= high_watermark <= log_end_offset; flushed_offset is the recovery point."""

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
        if not self.log_directory.online:
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
        stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        return _new_tuple(AppendInfo, (first, last, stamped, self.log_start_offset, False))

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
            if not self._is_closed():
                self.log_directory.take_offline(error)

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

    def read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True) -> Buffer:
        """As `look_up`, but read."""
        found = self.look_up(offset, max_bytes, upper_bound, min_one_batch)
        return found.take(len(found)) if isinstance(found, FileSlice) else found

    def look_up(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = True) -> Buffer | FileSlice:
        """Whole batches from the one that holds `offset` on, of one segment; many of them are not read yet.

        Only batches that end below `upper_bound` (exclusive), at most `max_bytes` bytes of them, but one batch in any
        case with `min_one_batch`. Empty at the end of the log. Raises KafkaError(OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR).
        """
        if not self.log_directory.online:
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

    def _read(self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool) -> Buffer | FileSlice:
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
        if stop <= position:
            return b""
        if stop - position >= UNREAD_BYTES and stop <= segment.sound_to:
            fd = segment.open_files.pin(segment.open_file())
            return FileSlice(segment, fd, position, stop, self._reading_failed)
        data = segment.read(position, stop)
        if stop > segment.sound_to:
            gapless = not self.config.compacts and segment.base_offset >= self.cleaned_to
            expected = max(offset, segment.base_offset) if gapless else None
            segment.check_frames(data, position, expected, segment_end)
        return data

    def _reading_failed(self, error: OSError) -> NoReturn:
        self._fail(error, "read from")

    def _repair(self, offset: int, problem: Exception) -> None:
        i = self._holder(offset)
        segment = self._segments[i]
        now_ms = self.clock.monotonic_ms()
        if segment.repaired_ms is not None and now_ms - segment.repaired_ms < _REPAIR_AGAIN_MS:
            return  # what a repair does not help is not read through again for each request
        segment.repaired_ms = now_ms
        if self._is_closed():  # deleted: a new topic may have its name, and its files
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} was deleted") from problem
        logger.warning("Rebuilding the indices of %s: %s", segment.path(), problem)
        end = self._bases[i + 1] if i + 1 < len(self._segments) else self.flushed_offset
        self._maxima.clear()
        try:
            self._repair_segment(segment, end)
            segment.rebuild_indices(self.config.index_interval_bytes)
            if not segment.has_sound_txn_index():
                segment.txn_index.rewrite(self._aborted_in(i))
        except OSError as error:
            segment.repaired_ms = None
            self._fail(error, "rebuild the indices of")

    def _aborted_in(self, i: int) -> list[AbortedTransaction]:
        producers = Producers(self.files, self.directory, self.config.producer_id_expiration_ms)
        producers.snapshots = [each for each in self.producers.snapshots if each <= self._bases[i]]
        producers.load_newest(self.log_start_offset, self.clock.wall_ms())
        return find_aborted(self._segments[: i + 1], producers)

    def _holder(self, offset: int) -> int:
        """Which segment a read of the offset comes to: compaction may have left nothing for it in its own."""
        i = max(bisect_right(self._bases, offset) - 1, 0)
        with suppress(CorruptIndexError, TornSegmentError):  # that one it is
            while i + 1 < len(self._segments) and self._segments[i].locate(offset) >= self._segments[i].size:
                i += 1
        return i

    def _repair_segment(self, segment: Segment, end_offset: int) -> None:
        """Make a segment a row of batches again, up to the first place where that cannot be."""
        gapless = not self.config.compacts and segment.base_offset >= self.cleaned_to
        expected = segment.base_offset
        position = 0
        while position < segment.size:
            try:
                for at, data, header in segment.batches(position):
                    base = header.base_offset
                    if not check_crc(data, 0, len(data)):  # where it ends is not certain either
                        break
                    if not expected <= base <= header.last_offset < end_offset or (gapless and base != expected):
                        break
                    position, expected = at + len(data), header.next_offset
            except KafkaError:
                logger.debug("Segment %s has no batch at position %d", segment.path(), position)
            if position >= segment.size:
                return
            stop = repair(segment, position, expected, end_offset, ends=segment.sealed)
            if stop is None:
                return
            expected = read_header(segment.read(position, position + HEADER_SIZE)).next_offset
            position = stop

    # Questions answered in lookup.py

    def learn_timestamps(self, limit: int) -> bool:
        """Look up the timestamps of up to `limit` sealed segments more; whether all are known now.

        The first question for a timestamp does it for all, which takes 15 us each while nothing comes from the disk.
        """
        from ottla.log.lookup import learn

        return self._ask(lambda: learn(self._segments, self._maxima, limit))

    def offset_for_timestamp(self, timestamp: int, upper_bound: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record of `timestamp` or later that is below `upper_bound`."""
        from ottla.log.lookup import find_timestamp

        return self._ask(
            lambda: find_timestamp(self._segments, self._maxima, timestamp, self.log_start_offset, upper_bound)
        )

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp; None in an empty log."""
        from ottla.log.lookup import find_max_timestamp

        return self._ask(lambda: find_max_timestamp(self._segments, self._maxima))

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset): the greatest epoch not above the asked one and where it ended; (-1, -1) if unknown."""
        return self.epochs.end_of(epoch, self.log_end_offset)

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, upper)."""
        from ottla.log.lookup import collect_aborted

        return self._ask(lambda: collect_aborted(self._segments, self._bases, start, upper))

    def _ask(self, question: Callable[[], T]) -> T:
        if not self.log_directory.online:
            self._offline()
        repaired = set()
        while True:
            try:
                return question()
            except HarmedSegmentError as error:
                base_offset, problem = error.segment.base_offset, error
            except OSError as error:
                self._fail(error, "read from")
            if base_offset in repaired:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} is corrupt: {problem}")
            repaired.add(base_offset)
            self._repair(base_offset, problem)
