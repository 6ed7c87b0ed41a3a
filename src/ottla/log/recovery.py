"""Opens a partition's directory in the state in which it was left: a clean shutdown, a crash, an interrupted swap.

After a clean shutdown only file sizes and the indices of the last segment are read. After a crash, every segment is
read, beginning with the segment that holds the offset before the recovery point: batches must be whole, with a right
CRC and rising offsets. The log ends at the first batch above the recovery point that is not, and later segments leave
the log. Indices, producer state and leader epochs of the segments that were read are rebuilt, and these segments count
as not flushed. A segment before the recovery point is read only if an index is missing or has an impossible size.

Why nothing acknowledged is lost: everything below the recovery point was synced, so a crash cannot have damaged it;
corruption there is repaired in place (see `repair`) and never ends the log. Everything above was written in order, so
what a crash left is a prefix. Cost: one read of the unflushed segments, by the compiled `records.survey`.

A gap between offsets does not mean a loss: compaction leaves gaps, also between segments, and followers copy them.
Within a segment, lost batches leave bytes that are not a batch, since those after them have their positions. At the end
of a segment they may leave nothing. Only there, and only if the file `<offset>.rolled` says that this log ended the
segment at that offset and did not sync it since, the log ends before the gap. Whatever leaves the log and has a batch
with a right CRC is retained beside it (see `salvage`).
"""

import logging
from collections.abc import Iterable

from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.log import salvage
from ottla.log.checkpoints import read_topic_id
from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import Opening
from ottla.log.durability import Durability
from ottla.log.epoch_check import settle_epochs
from ottla.log.epochs import LeaderEpochs
from ottla.log.files import Files
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.log import Log
from ottla.log.open_files import OpenFiles
from ottla.log.producer_recovery import replay_producers
from ottla.log.producer_state import ProducerState
from ottla.log.repair import MOST_REALIGNED, has_sound_batch
from ottla.log.segment import CLEANED, DELETED, ROLLED, SWAP, Segment
from ottla.log.segment_file import SUFFIXES, TornSegmentError, file_name
from ottla.log.segment_list import SegmentList
from ottla.log.segment_recovery import Bounds, SegmentRecovery

logger = logging.getLogger(__name__)

SNAPSHOT = ".snapshot"
_DIGITS = 20
INT64_MAX = (1 << 63) - 1


def open_log(
    context: LogContext, config: LogConfig, *, opening: Opening | None = None, topic_id: Uuid = ZERO_UUID
) -> Log:
    """Open the log in the context's directory, which is created if it is missing. Raises OSError as the disk does.

    `topic_id` is written to `partition.metadata` if that file has none; otherwise the file's topic id counts. The
    directory and the file are on disk after the first `flush`, as records are: many partitions are created at once.
    """
    opening = opening or Opening()
    if not context.files.is_directory(context.path):
        context.files.make_directory(context.path)
    loader = _Loader(context, config, opening)
    try:
        loader.load()
    except OSError:
        loader.close()
        raise
    segments = SegmentList(context, config, loader.segments, loader.end_offset)
    segments.cleaned_to = opening.cleaned_to
    segments.delete_later(loader.deletions)
    durability = Durability(context, config, segments, loader.epochs, loader.flushed_offset)
    durability.sync_segments_later(loader.unsynced)
    segments.unsynced.rolled += sorted(loader.rolled)
    log = Log(context, config, segments, loader.producers, loader.epochs, durability)
    log.topic_id = read_topic_id(context.files, context.path)
    log.log_start_offset = loader.log_start_offset
    log.high_watermark = opening.high_watermark
    if log.topic_id == ZERO_UUID and topic_id != ZERO_UUID:
        _adopt(log, topic_id)
    return log


def create_log(context: LogContext, config: LogConfig, topic_id: Uuid) -> Log:
    """Plan an empty log whose directory does not exist: its first append creates the files."""
    files, path = context.files, context.path
    segment = Segment.planned(files, path, context.open_files, context.clock.wall_ms())
    segments = SegmentList(context, config, [segment], 0)
    epochs = LeaderEpochs(files, path)
    producers = ProducerState(files, path, config.producer_id_expiration_ms)
    log = Log(context, config, segments, producers, epochs, Durability(context, config, segments, epochs, 0))
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
    """The steps of opening a log, in the order of `load`."""

    def __init__(self, context: LogContext, config: LogConfig, opening: Opening) -> None:
        self.context = context
        self.files = context.files
        self.config = config
        self.opening = opening
        self._prefix = f"[LogLoader partition={context.topic_partition}, dir={context.path.rpartition('/')[0]}]"
        self.epochs = LeaderEpochs.load(self.files, context.path)
        self.producers = ProducerState(self.files, context.path, config.producer_id_expiration_ms)
        self.segments: list[Segment] = []
        # Segments that were read and are not flushed.
        self.unsynced: list[Segment] = []
        # Where a segment ended that may not be on disk, and the next one began.
        self.rolled: set[int] = set()
        # Paths of bytes that left the log.
        self.saved: set[str] = set()
        # Files of removed segments, renamed already.
        self.deletions: list[str] = []
        self.log_start_offset = opening.log_start_offset
        self.end_offset = 0
        self.flushed_offset = 0

    @property
    def now_ms(self) -> int:
        """The time of new files."""
        return self.context.clock.wall_ms()

    def load(self) -> None:
        """Set every attribute that a `Log` is made of."""
        damaged = self._find_segments(finish_swaps(self.files, self.context.path, self.context.open_files))
        recovered_to = self._recover(damaged)
        self._settle_end(recovered_to)
        self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        settle_epochs(self.epochs, self.segments, self.log_start_offset, self.end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._settle_producers(recovered_to is not None)
        if self.saved:
            salvage.limit(self.files, self.context.path, self.saved)

    def close(self) -> None:
        """Close the files of a log that could not be opened."""
        for segment in self.segments:
            segment.file.close_file()

    def _find_segments(self, names: list[str]) -> set[int]:
        """List segments and snapshots; return the base offsets of segments that need recovery for their indices."""
        present = set(names)
        damaged: set[int] = set()
        for name in names:
            offset = _offset_of(name)
            if offset < 0:
                continue
            suffix = name[_DIGITS:]
            path = f"{self.context.path}/{name}"
            if suffix == SNAPSHOT:
                self.producers.snapshots.append(offset)
            elif suffix == ROLLED:
                self._find_roll(offset, path)
            elif suffix in SUFFIXES[1:] and file_name(offset) not in present:
                logger.warning("Found an orphaned index file %s, with no corresponding log file; deleting it", path)
                self.files.unlink(path)
            elif suffix == ".log":
                segment = Segment.of_files(
                    self.files, self.context.path, offset, self.context.open_files, size=self.files.size(path)
                )
                segment.created_ms = self.now_ms
                self.segments.append(segment)
                if not self._has_sane_indices(segment, present):
                    damaged.add(offset)
        return damaged

    def _find_roll(self, offset: int, path: str) -> None:
        if self.opening.clean or offset <= self.opening.recovery_point:
            self.files.unlink(path)
        else:
            self.rolled.add(offset)

    def _has_sane_indices(self, segment: Segment, present: set[str]) -> bool:
        for kind, entry in ((".index", OffsetIndex.entry), (".timeindex", TimeIndex.entry)):
            path = segment.file.path(kind)
            if file_name(segment.base_offset, kind) not in present or self.files.size(path) % entry.size:
                return False
        if file_name(segment.base_offset, ".txnindex") in present:
            segment.indices.transactions.is_expected = True
            return segment.indices.has_sound_transactions()
        return True

    def _recover(self, damaged: set[int]) -> int | None:
        """Read the segments that may be damaged; the end offset if the last segment was read, else None."""
        first = len(self.segments)
        if not self.opening.clean:
            # A segment that ends at the recovery point is read, too: it may have been rolled after its records were
            # synced, and then its indices were not.
            point = self.opening.recovery_point
            first = max((i for i, s in enumerate(self.segments) if s.base_offset < point), default=0)
        i = 0
        end: int | None = None
        while i < len(self.segments):
            segment = self.segments[i]
            if i >= first or segment.base_offset in damaged:
                end, is_last = self._recover_segment(i)
                if is_last:
                    self._remove(self.segments[i + 1 :], "it does not follow the previous one")
            else:
                end = None
            i += 1
        return end

    def _is_end(self, i: int, end: int, *, cut: bool) -> bool:
        """Whether the log ends with this segment, because a crash took batches after `end`."""
        if i + 1 == len(self.segments) or end < self._bounds_of(i).synced_to:
            return False
        following = self.segments[i + 1].base_offset
        if end < following in self.rolled:
            path = self.segments[i].file.path()
            logger.warning("Segment %s ends at offset %d, but the next one starts at %d", path, end, following)
            return True
        return cut

    def _recover_segment(self, i: int) -> tuple[int, bool]:
        """Read a whole segment; (offset after its last good batch, whether the log ends with it)."""
        segment = self.segments[i]
        logger.info("%s Recovering unflushed segment %d.", self._prefix, segment.base_offset)
        bounds = self._bounds_of(i)
        for attempt in range(MOST_REALIGNED + 1):
            self._bring_producers_to(segment, again=attempt > 0)
            recovery = SegmentRecovery(segment, self.producers, self.epochs, self.config.index_interval_bytes)
            end = recovery.run(bounds, may_realign=attempt < MOST_REALIGNED)
            if not recovery.was_realigned:
                break
        cut = segment.file.size > recovery.good_bytes
        if cut and segment is not self.segments[-1] and end < bounds.synced_to:
            cut = not has_sound_batch(segment, recovery.good_bytes)  # what was synced stays, whatever it is
        segment.sound_to = recovery.good_bytes
        if cut:
            self._cut(segment, recovery, end, bounds)
        segment.seal()
        segment.file.close_file()
        self.unsynced.append(segment)
        self.producers.end_offset = max(end, self.producers.end_offset)
        if segment is not self.segments[-1] and not cut:
            self.producers.take_snapshot(self.producers.end_offset)
        return end, self._is_end(i, end, cut=cut)

    def _cut(self, segment: Segment, recovery: SegmentRecovery, end: int, bounds: Bounds) -> None:
        """Cut off what follows the good batches of a segment. A copy stays if any of it may be worth something."""
        good = recovery.good_bytes
        logger.warning(
            "%s Corruption found in segment %d, truncating to offset %d (%d of %d bytes): %s",
            self._prefix, segment.base_offset, end, good, segment.file.size, recovery.problem,
        )  # fmt: skip
        if end < bounds.synced_to or has_sound_batch(segment, good):
            path = salvage.save_bytes(segment, good, segment.file.size, salvage.REMOVED)
            self.saved.add(path)
            logger.error(
                "%s The bytes that were cut off are in %s. To bring them back, stop the broker before the partition has"
                " new records and append them to %s (cat COPY >> SEGMENT); dump-log shows their records",
                self._prefix, path, segment.file.path(),
            )  # fmt: skip
        self.files.truncate(segment.file.open(), good)
        # Sync before anything is written there: a power cut must not bring back what was cut off.
        self.files.fsync(segment.file.fd)
        segment.file.size = good

    def _bounds_of(self, i: int) -> Bounds:
        """The certain bounds of a segment: a crash cannot have damaged what was on disk."""
        point = self.opening.recovery_point
        following = self.segments[i + 1].base_offset if i + 1 < len(self.segments) else None
        end_offset = INT64_MAX if following is None else following
        if self.opening.clean:
            ends_at = following
            if following is None and point > self.segments[i].base_offset:
                ends_at = point
            return Bounds(end_offset, end_offset, ends_at)
        return Bounds(end_offset, min(end_offset, point), following if end_offset <= point else None)

    def _bring_producers_to(self, segment: Segment, *, again: bool) -> None:
        start = segment.base_offset
        self.producers.drop_snapshots_above(start)
        if again or self.producers.end_offset != start or not self.unsynced:
            self.producers.load_newest(self.segments[0].base_offset, self.now_ms)
            replay_producers([s for s in self.segments if s.base_offset < start], self.producers, start)

    def _remove(self, segments: Iterable[Segment], problem: str) -> None:
        removed = list(segments)
        for segment in removed:
            logger.warning("%s Deleting segment %s: %s", self._prefix, segment, problem)
            is_valuable = has_sound_batch(segment, 0)
            segment.file.close_file()
            if is_valuable:
                path = salvage.save_segment(segment)
                self.saved.add(path)
                logger.error(
                    "%s The records of segment %s are in %s. To bring them back, stop the broker before the partition"
                    " has new records and rename the file to %s; dump-log shows its records",
                    self._prefix, segment, path, segment.file.path(),
                )  # fmt: skip
            segment.change_suffix(DELETED)
            self.deletions.extend(segment.file.path(kind) for kind in SUFFIXES)
            self.producers.drop_snapshot(segment.base_offset)
            self.segments.remove(segment)
        if removed:
            self.files.fsync_directory(self.context.path)

    def _settle_end(self, recovered_to: int | None) -> None:
        """Find the end offset, prepare the active segment for appends, and set the recovery point."""
        if self.segments:
            self.end_offset = self._end_of_log(recovered_to)
            if self.end_offset < self.log_start_offset:
                logger.warning(
                    "%s Deleting all segments because logEndOffset (%d) is smaller than logStartOffset (%d).",
                    self._prefix, self.end_offset, self.log_start_offset,
                )  # fmt: skip
                self._remove(self.segments, "it ends before the log start")
                self.unsynced.clear()
                self.epochs.clear()
        if not self.segments:
            start = self.log_start_offset
            self.segments.append(
                Segment.create(self.files, self.context.path, start, self.context.open_files, self.now_ms)
            )
            self.end_offset = start
        else:
            active = self.segments[-1]
            active.activate()
            active.cover_tail(active.file.size, self.end_offset)
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
            active.indices.offsets.load()
            active.indices.times.load()
            return active.indices.next_offset()
        except (CorruptIndexError, TornSegmentError, KafkaError) as error:
            logger.warning("Recovering %s although the shutdown was clean: %s", active.file.path(), error)
            return self._recover_segment(len(self.segments) - 1)[0]

    def _settle_producers(self, was_recovered: bool) -> None:
        producers = self.producers
        producers.retain_snapshots({segment.base_offset for segment in self.segments})
        if was_recovered and producers.end_offset == self.end_offset:
            producers.expire(self.now_ms)
            return
        producers.drop_snapshots_above(self.end_offset)
        if self.opening.clean and not producers.snapshots:
            # A clean close writes a snapshot, so without one the log never had a producer with an id.
            producers.reset(self.end_offset)
            producers.snapshot_offset = self.log_start_offset
            return
        producers.load_newest(self.segments[0].base_offset, self.now_ms)
        replay_producers(self.segments, producers, self.end_offset)


def finish_swaps(files: Files, directory: str, open_files: OpenFiles) -> list[str]:
    """Complete or undo an interrupted swap of the cleaner and delete files marked for deletion; the names left.

    A `.cleaned` file was still being written: it is deleted, and so are `.swap` files of the same or a higher base
    offset. The other `.swap` files are complete: they replace the segments whose offsets they cover. The order of the
    renames in `Cleaner` makes these two cases the only ones.
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
        segment = Segment.of_files(files, directory, offset, open_files, size=size, suffix=SWAP)
        low = min(low, offset)
        for _, _, header in segment.file.batches():
            high = max(high, header.next_offset)
        segment.file.close_file()
    for name in names:
        if low <= _offset_of(name) < high and name[_DIGITS:] in (*SUFFIXES, SNAPSHOT):
            files.unlink(f"{directory}/{name}")


def _offset_of(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == _DIGITS and stem.isdigit() else -1
