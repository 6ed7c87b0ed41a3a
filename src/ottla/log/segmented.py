"""A log's segments: how a new one begins, how old ones go, how both ends of the log are cut.

Contract. Files that go are renamed at once and removed after file.delete.delay.ms (`purge`). The start moves with
`advance_start` and never above the high watermark; the end moves back with `truncate_to`, which also takes back what
is known of producers and leader epochs.
"""

import logging
from collections.abc import Iterable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log.durable import DurableLog
from ottla.log.index import CorruptIndexError
from ottla.log.producers import Producers
from ottla.log.segment import DELETED, SUFFIXES, Segment, TornSegmentError
from ottla.log.txn_index import AbortedTransaction

logger = logging.getLogger(__name__)


class SegmentedLog(DurableLog):
    """A durable log in segments, the last of which is active."""

    # Segments

    def roll(self, now_ms: int | None = None) -> Segment:
        """Seal the active segment and begin a new one at the end of the log; nothing if it is empty.

        Raises ShortageError, and the log is as before; KafkaError(KAFKA_STORAGE_ERROR) if the disk fails.
        """
        try:
            return self._roll_to(self.log_end_offset, self.clock.wall_ms() if now_ms is None else now_ms)
        except OSError as error:
            self._fail(error, "roll")

    def _roll_to(self, offset: int, now_ms: int) -> Segment:
        old = self._active
        if old.size == 0 and old.base_offset == offset:
            return old
        # All that may fail comes first, so that a failure leaves the log as it was.
        started_ms = self.clock.monotonic_ms()
        self.producers.end_offset = self.log_end_offset
        snapshot = self.producers.take_snapshot()
        snapshot_ms = self.clock.monotonic_ms()
        old.write_out()
        new = Segment.create(self.files, self.directory, offset, self.open_files, now_ms)
        with self._lock:
            old.mark_sealed()
            self._unsynced.append(old)
            if snapshot is not None:
                self._unsynced_paths.append(snapshot)
            self._directory_changed = True
            self._segments.append(new)
            self._bases.append(offset)
            self._active = new
        logger.info(
            "[LocalLog partition=%s, dir=%s] Rolled new log segment at offset %d in %d ms.",
            self.topic_partition, self.directory, offset, self.clock.monotonic_ms() - started_ms,
        )  # fmt: skip
        if snapshot is not None:
            logger.info(
                "[ProducerStateManager partition=%s] Wrote producer snapshot at offset %d with %d producer ids"
                " in %d ms.",
                self.topic_partition, self.log_end_offset, len(self.producers.entries), snapshot_ms - started_ms,
            )  # fmt: skip
        return new

    def remove_segments(self, doomed: list[Segment]) -> None:
        """Take segments out of the log; their files are renamed now and removed after file.delete.delay.ms."""
        if doomed:
            self.adopt_segments([], doomed)

    def adopt_segments(self, new: list[Segment], old: list[Segment]) -> None:
        """Put sealed segments in the place of `old` ones, which are removed (the cleaner's swap)."""
        with self._lock:
            gone = {id(segment) for segment in old}
            kept = [segment for segment in self._segments if id(segment) not in gone]
            self._segments = sorted([*kept, *new], key=lambda segment: segment.base_offset)
            self._bases = [segment.base_offset for segment in self._segments]
            self._maxima.clear()
            self._unsynced = [segment for segment in self._unsynced if id(segment) not in gone]
            self._directory_changed = True
            for segment in old:
                segment.close_file()
        for segment in old:
            segment.change_suffix(DELETED)
            for kind in SUFFIXES:
                self.doom(segment.path(kind))
        for segment in new:
            segment.change_suffix("")
        for base in {segment.base_offset for segment in old} - {segment.base_offset for segment in new}:
            self.producers.drop_snapshot(base)

    def doom(self, path: str) -> None:
        """Have a file (renamed already) removed after file.delete.delay.ms."""
        self._doomed.append((self.clock.wall_ms() + self.config.file_delete_delay_ms, path))

    def purge(self, now_ms: int) -> list[str]:
        """The files whose time has come; the caller unlinks them, in another thread if it likes."""
        latest = now_ms + self.config.file_delete_delay_ms  # beyond: the clock was set back
        due = [path for moment, path in self._doomed if not now_ms < moment <= latest]
        if due:
            self._doomed = [(moment, path) for moment, path in self._doomed if now_ms < moment <= latest]
        return due

    # Cutting

    def advance_start(self, offset: int, reason: str) -> bool:
        """Let the log begin at `offset` (not beyond the high watermark); whether that is a change."""
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        logger.info(
            "[UnifiedLog partition=%s, dir=%s] Incremented log start offset to %d due to %s",
            self.topic_partition, self.log_directory.path, offset, reason,
        )  # fmt: skip
        self._high_watermark = max(self._high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.on_high_watermark(offset)
        return True

    def delete_records_before(self, offset: int, reason: str = "client delete records request") -> int:
        """Make records below `offset` unreadable (-1: below the high watermark); the new log start offset.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark. Their space comes back with
        `delete_old_segments`.
        """
        if not self.log_directory.online:
            self._offline()
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
        """Delete what retention and the log start allow; how many segments."""
        from ottla.log.retention import find_expired

        if not self.log_directory.online:
            self._offline()
        try:
            reasons = find_expired(
                self._segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self._high_watermark,
                log_end_offset=self.log_end_offset,
                now_ms=now_ms,
            )
            if reasons:
                self._remove_first(reasons)
        except OSError as error:
            self._fail(error, "delete old segments of")
        return len(reasons)

    def _remove_first(self, reasons: list[str]) -> None:
        count = len(reasons)
        doomed = self._segments[:count]
        for segment, reason in zip(doomed, reasons, strict=True):
            logger.info(
                "[UnifiedLog partition=%s, dir=%s] Deleting segment %s due to %s",
                self.topic_partition, self.log_directory.path, segment, reason,
            )  # fmt: skip
        if count == len(self._segments):
            self.roll()
        self.advance_start(self._segments[count].base_offset, "segment deletion")
        self.remove_segments(doomed)

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on (the whole batch that holds it); whether that was anything."""
        if not self.log_directory.online:
            self._offline()
        if offset >= self.log_end_offset:
            return False
        logger.info(
            "[UnifiedLog partition=%s, dir=%s] Truncating to offset %d",
            self.topic_partition,
            self.log_directory.path,
            offset,
        )
        try:
            if offset < self._bases[0]:
                self.truncate_fully(offset)
            else:
                self._truncate(offset)
        except OSError as error:
            # Whatever the error is, a truncation that was cut short is for the next start to finish.
            self.log_directory.take_offline(error)
            self._fail(error, "truncate")
        return True

    def _truncate(self, offset: int) -> None:
        self.remove_segments([segment for segment in self._segments if segment.base_offset > offset])
        with self._lock:
            self.truncations += 1
            self._maxima.clear()
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
        logger.info(
            "[UnifiedLog partition=%s, dir=%s] Truncate and start at offset %d",
            self.topic_partition, self.log_directory.path, offset,
        )  # fmt: skip
        self.remove_segments(list(self._segments))
        with self._lock:
            self.truncations += 1
            segment = Segment.create(self.files, self.directory, offset, self.open_files, self.clock.wall_ms())
            self._segments, self._bases, self._active = [segment], [offset], segment
            self._maxima.clear()
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
        producers.drop_snapshots_above(self.log_end_offset)
        producers.load_newest(self.log_start_offset, self.clock.wall_ms())
        replay_producers(self._segments, producers, self.log_end_offset)


def replay_producers(segments: Iterable[Segment], producers: Producers, end_offset: int) -> None:
    """Bring the producers' state from its `end_offset` up to `end_offset` with the batches in between.

    Corrupt batches are skipped: the log starts without them.
    """
    row = list(segments)
    for i, segment in enumerate(row):
        start = producers.end_offset
        if segment.base_offset >= end_offset:
            break
        if i + 1 < len(row) and row[i + 1].base_offset <= start:
            continue
        try:
            _replay_segment(segment, producers, start, end_offset)
        except (KafkaError, CorruptIndexError, TornSegmentError) as error:
            logger.warning("Producer state in the rest of %s is unknown: %s", segment.path(), error)
    producers.end_offset = max(producers.end_offset, end_offset)


def find_aborted(segments: list[Segment], producers: Producers) -> list[AbortedTransaction]:
    """The aborted transactions that end in the last of `segments`, for its index; `producers` are of an earlier offset.

    Transactions may have begun in the segments before, from which `producers` are brought up to date.
    """
    segment = segments[-1]
    replay_producers(segments[:-1], producers, segment.base_offset)
    aborted = []
    for _, data, header in segment.batches():
        completed = producers.replay(data, 0, header)
        if completed is not None:
            if completed.aborted:
                stable = producers.last_stable_offset_after(completed)
                ends = (completed.producer_id, completed.first_offset, completed.last_offset)
                aborted.append(AbortedTransaction(*ends, stable))
            producers.complete(completed)
    return aborted


def _replay_segment(segment: Segment, producers: Producers, start: int, end_offset: int) -> None:
    position = segment.locate(start) if start > segment.base_offset else 0
    for _, data, header in segment.batches(position):
        if header.base_offset >= end_offset:
            break
        if header.base_offset >= start:
            completed = producers.replay(data, 0, header)
            if completed is not None:
                producers.complete(completed)


def _activate(segment: Segment, index_interval: int) -> None:
    try:
        segment.activate()
    except CorruptIndexError:
        segment.rebuild_indices(index_interval)
        segment.activate()
