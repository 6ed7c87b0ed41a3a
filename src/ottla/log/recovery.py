"""Open a partition's directory as it was left: after a clean shutdown, a crash, a swap of the cleaner cut short.

After a clean shutdown only file sizes and the last segment's indices are looked at. Otherwise every segment from the
one on that holds what is just before the recovery point is read: batches must be whole, their CRC right, their offsets
rising. At the first that is not so the log ends; what follows is removed. Indices, producer state and leader epochs of
what was read are made anew, and it counts as not flushed. A segment before the recovery point is read only if an index
is missing or has an impossible size.
"""

import logging

from ottla.common.clock import Clock, SystemClock
from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log.checkpoints import read_topic_id
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, Opening
from ottla.log.epoch_check import settle_epochs
from ottla.log.epochs import LeaderEpochs
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.log import Log
from ottla.log.open_files import OpenFiles
from ottla.log.producers import Producers
from ottla.log.segment import (
    CLEANED,
    DELETED,
    SUFFIXES,
    SWAP,
    Segment,
    TornSegmentError,
    file_name,
)
from ottla.log.segmented import replay_producers

logger = logging.getLogger(__name__)

SNAPSHOT = ".snapshot"
_DIGITS = 20
INT64_MAX = (1 << 63) - 1


def open_log(
    log_directory: LogDirectory,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    opening: Opening | None = None,
    topic_id: Uuid = ZERO_UUID,
    clock: Clock | None = None,
    open_files: OpenFiles | None = None,
) -> Log:
    """Open the log in `directory`, which is created if it is missing. Raises OSError as the disk does.

    A given `topic_id` is written to `partition.metadata` if there is none; the log's is the one in that file. That
    the directory and the file are there is on disk with the first `flush`, as records are: many are made in one go.
    """
    clock = clock or SystemClock()
    opening = opening or Opening()
    if not log_directory.files.is_directory(directory):
        log_directory.files.make_directory(directory)
    loader = _Loader(log_directory.files, directory, topic_partition, config, opening, clock, open_files or OpenFiles())
    try:
        loader.load()
    except OSError:
        loader.close()
        raise
    log = Log(
        log_directory,
        directory,
        topic_partition,
        config,
        segments=loader.segments,
        producers=loader.producers,
        epochs=loader.epochs,
        log_start_offset=loader.log_start_offset,
        log_end_offset=loader.end_offset,
        flushed_offset=loader.flushed_offset,
        topic_id=read_topic_id(log_directory.files, directory),
        clock=clock,
        open_files=loader.open_files,
    )
    if log.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
        _adopt(log, topic_id)
    log.cleaned_to = opening.cleaned_to
    log.note_unsynced(loader.unsynced)
    for path in loader.doomed:
        log.doom(path)
    log.high_watermark = opening.high_watermark
    return log


def create_log(
    log_directory: LogDirectory,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    topic_id: Uuid,
    clock: Clock,
    open_files: OpenFiles,
) -> Log:
    """An empty log in `directory`, which does not exist yet; as `open_log`, with few touches of the disk."""
    files = log_directory.files
    files.make_directory(directory)
    producers = Producers(files, directory, config.producer_id_expiration_ms)
    log = Log(
        log_directory,
        directory,
        topic_partition,
        config,
        segments=[Segment.create(files, directory, 0, open_files, clock.wall_ms(), fresh=True)],
        producers=producers,
        epochs=LeaderEpochs(files, directory),
        log_start_offset=0,
        log_end_offset=0,
        flushed_offset=0,
        clock=clock,
        open_files=open_files,
    )
    if topic_id != ZERO_UUID:
        _adopt(log, topic_id)
    return log


def _adopt(log: Log, topic_id: Uuid) -> None:
    try:
        log.adopt(topic_id)
    except OSError:
        log.abandon()
        raise


class _Loader:
    """The steps of opening, in the order of `load`."""

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        opening: Opening,
        clock: Clock,
        open_files: OpenFiles,
    ) -> None:
        self.files = files
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.opening = opening
        self.now_ms = clock.wall_ms()
        self._prefix = f"[LogLoader partition={topic_partition}, dir={directory.rpartition('/')[0]}]"
        self.open_files = open_files
        self.epochs = LeaderEpochs.load(files, directory)
        self.producers = Producers(files, directory, config.producer_id_expiration_ms)
        self.segments: list[Segment] = []
        self.unsynced: list[Segment] = []
        # Base offsets of the segments that were read through.
        self.doomed: list[str] = []
        self.log_start_offset = opening.log_start_offset
        self.end_offset = 0
        self.flushed_offset = 0

    def load(self) -> None:
        """Find out all that a `Log` needs."""
        damaged = self._find_segments(finish_swaps(self.files, self.directory, self.open_files))
        recovered_to = self._recover(damaged)
        self._settle_end(recovered_to)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        settle_epochs(self.epochs, self.segments, self.log_start_offset, self.end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._settle_producers(recovered_to is not None)

    def close(self) -> None:
        """Close the files of a log that could not be opened."""
        for segment in self.segments:
            segment.close_file()

    def _find_segments(self, names: list[str]) -> set[int]:
        present = set(names)
        damaged: set[int] = set()
        for name in names:
            offset = _offset_of(name)
            if offset < 0:
                continue
            suffix = name[_DIGITS:]
            if suffix == SNAPSHOT:
                self.producers.snapshots.append(offset)
            elif suffix in SUFFIXES[1:] and file_name(offset) not in present:
                path = f"{self.directory}/{name}"
                logger.warning("Found an orphaned index file %s, with no corresponding log file; deleting it", path)
                self.files.unlink(f"{self.directory}/{name}")
            elif suffix == ".log":
                size = self.files.size(f"{self.directory}/{name}")
                segment = Segment(self.files, self.directory, offset, self.open_files, size=size)
                segment.created_ms = self.now_ms
                self.segments.append(segment)
                if not self._has_sane_indices(segment, present):
                    damaged.add(offset)
        return damaged

    def _has_sane_indices(self, segment: Segment, present: set[str]) -> bool:
        for kind, entry in ((".index", OffsetIndex.entry), (".timeindex", TimeIndex.entry)):
            if file_name(segment.base_offset, kind) not in present or self.files.size(segment.path(kind)) % entry.size:
                return False
        if file_name(segment.base_offset, ".txnindex") in present:
            segment.txn_index.is_expected = True
            return segment.has_sound_txn_index()
        return True

    def _recover(self, damaged: set[int]) -> int | None:
        """Read what may be harmed; the end offset if that went up to the end of the log, else None."""
        first = len(self.segments)
        if not self.opening.clean:
            # One that ends right there may have been rolled since: its records were synced, its indices were not.
            point = self.opening.recovery_point
            first = max((i for i, s in enumerate(self.segments) if s.base_offset < point), default=0)
        i = 0
        end: int | None = None
        while i < len(self.segments):
            segment = self.segments[i]
            if i >= first or segment.base_offset in damaged:
                end, cut = self._recover_segment(i)
                if cut or self._is_cut_short(i, end):
                    self._remove(self.segments[i + 1 :])
            else:
                end = None
            i += 1
        return end

    def _is_cut_short(self, i: int, end: int) -> bool:
        # A crash can take the last batches of a segment and leave the next one: whole batches with a hole between.
        if i + 1 == len(self.segments) or not self._has_no_gaps(self.segments[i]):
            return False
        following = self.segments[i + 1].base_offset
        if end != following:
            path = self.segments[i].path()
            logger.warning("Segment %s ends at offset %d, but the next one starts at %d", path, end, following)
        return end != following

    def _has_no_gaps(self, segment: Segment) -> bool:
        return not self.config.compacts and segment.base_offset >= self.opening.cleaned_to

    def _recover_segment(self, i: int) -> tuple[int, bool]:
        """Read a segment through; (offset after its last good batch, whether anything was cut off)."""
        from ottla.log.segment_recovery import SegmentRecovery  # a start after a clean shutdown needs none of it

        segment = self.segments[i]
        logger.info("%s Recovering unflushed segment %d.", self._prefix, segment.base_offset)
        self._bring_producers_to(segment)
        point, sealed = self._synced_in(i)
        interval = self.config.index_interval_bytes
        recovery = SegmentRecovery(segment, self.producers, self.epochs, interval, point, sealed=sealed)
        end = recovery.run(gaps=not self._has_no_gaps(segment))
        cut = segment.size > recovery.good_bytes
        segment.sound_to = recovery.good_bytes
        if cut:
            segment.open_file()
            logger.warning(
                "%s Corruption found in segment %d, truncating to offset %d (%d of %d bytes): %s",
                self._prefix, segment.base_offset, end, recovery.good_bytes, segment.size, recovery.problem,
            )  # fmt: skip
            self.files.truncate(segment.fd, recovery.good_bytes)
            # Before anything is written there: a second power cut must not bring back what was given up.
            self.files.fsync(segment.fd)
            segment.size = recovery.good_bytes
        segment.seal()
        segment.close_file()
        self.unsynced.append(segment)
        self.producers.end_offset = max(end, self.producers.end_offset)
        if segment is not self.segments[-1] and not cut:
            self.producers.take_snapshot()
        return end, cut

    def _synced_in(self, i: int) -> tuple[int, bool]:
        """Below this offset the segment was on disk for certain: what is wrong there, no crash has done.

        And whether all of it was, up to the next segment.
        """
        ends = self.segments[i + 1].base_offset if i + 1 < len(self.segments) else INT64_MAX
        synced = min(ends, self.opening.recovery_point if not self.opening.clean else ends)
        return synced, synced == ends < INT64_MAX

    def _bring_producers_to(self, segment: Segment) -> None:
        start = segment.base_offset
        self.producers.drop_snapshots_above(start)
        if self.producers.end_offset != start or not self.unsynced:
            self.producers.load_newest(self.log_start_offset, self.now_ms)
            replay_producers([s for s in self.segments if s.base_offset < start], self.producers, start)

    def _remove(self, doomed: list[Segment]) -> None:
        for segment in doomed:
            logger.warning("%s Deleting segment %s: it does not follow the one before", self._prefix, segment)
            segment.close_file()
            segment.change_suffix(DELETED)
            self.doomed.extend(segment.path(kind) for kind in SUFFIXES)
            self.producers.drop_snapshot(segment.base_offset)
            self.segments.remove(segment)
        if doomed:
            self.files.fsync_directory(self.directory)

    def _settle_end(self, recovered_to: int | None) -> None:
        if self.segments:
            self.end_offset = self._end_of_log(recovered_to)
            if self.end_offset < self.log_start_offset:
                logger.warning(
                    "%s Deleting all segments because logEndOffset (%d) is smaller than logStartOffset (%d).",
                    self._prefix, self.end_offset, self.log_start_offset,
                )  # fmt: skip
                self._remove(list(self.segments))
                self.unsynced.clear()
                self.epochs.clear()
        if not self.segments:
            start = self.log_start_offset
            self.segments.append(Segment.create(self.files, self.directory, start, self.open_files, self.now_ms))
            self.end_offset = start
        else:
            active = self.segments[-1]
            active.activate()
            active.cover_tail(active.size, self.end_offset)
            self.unsynced = [segment for segment in self.unsynced if segment is not active]
        self.flushed_offset = (
            self.end_offset
            if self.opening.clean and not self.unsynced and recovered_to is None
            else min(self.opening.recovery_point, self.end_offset)
        )

    def _end_of_log(self, recovered_to: int | None) -> int:
        if recovered_to is not None:
            return recovered_to
        active = self.segments[-1]
        try:
            active.offset_index.load()
            active.time_index.load()
            return active.next_offset()
        except (CorruptIndexError, TornSegmentError, KafkaError) as error:
            logger.warning("Recovering %s although the shutdown was clean: %s", active.path(), error)
            return self._recover_segment(len(self.segments) - 1)[0]

    def _settle_producers(self, was_recovered: bool) -> None:
        producers = self.producers
        producers.keep_snapshots({segment.base_offset for segment in self.segments})
        if was_recovered and producers.end_offset == self.end_offset:
            producers.expire(self.now_ms)
            return
        producers.drop_snapshots_above(self.end_offset)
        if self.opening.clean and not producers.snapshots:
            # Kafka writes a snapshot at every close: without one there were never producers with an id.
            producers.reset(self.end_offset)
            producers.snapshot_offset = self.log_start_offset
            return
        producers.load_newest(self.log_start_offset, self.now_ms)
        replay_producers(self.segments, producers, self.end_offset)


def finish_swaps(files: Files, directory: str, open_files: OpenFiles) -> list[str]:
    """Complete or undo what the cleaner was doing, and remove files that were to be deleted; the names then there.

    `.cleaned` files were still being written: they go, and with them `.swap` files of the same or a higher base
    offset. The other `.swap` files are whole: the segments that they replace go and they take their names.
    """
    names = files.list(directory)
    if not any(name.endswith((DELETED, CLEANED, SWAP)) for name in names):
        return names
    for name in names:
        if name.endswith(DELETED) and not name.endswith(".checkpoint" + DELETED):
            files.unlink(f"{directory}/{name}")
    cleaned = [name for name in names if name.endswith(CLEANED)]
    first_cleaned = min((_offset_of(name) for name in cleaned), default=1 << 63)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in [n for n in swaps if _offset_of(n) >= first_cleaned] + cleaned:
        files.unlink(f"{directory}/{name}")
    swaps = [name for name in swaps if _offset_of(name) < first_cleaned]
    if swaps:
        _remove_replaced(files, directory, names, swaps, open_files)
        for name in swaps:
            files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
        files.fsync_directory(directory)
    return files.list(directory)


def _remove_replaced(files: Files, directory: str, names: list[str], swaps: list[str], open_files: OpenFiles) -> None:
    low, high = 1 << 63, -1
    for name in swaps:
        if not name.endswith(".log" + SWAP):
            continue
        offset = _offset_of(name)
        size = files.size(f"{directory}/{name}")
        segment = Segment(files, directory, offset, open_files, size=size, suffix=SWAP)
        low = min(low, offset)
        for _, _, header in segment.batches():
            high = max(high, header.next_offset)
        segment.close_file()
    for name in names:
        if not name.endswith((SWAP, CLEANED, DELETED)) and low <= _offset_of(name) < high:
            files.unlink(f"{directory}/{name}")


def _offset_of(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == _DIGITS and stem.isdigit() else -1
