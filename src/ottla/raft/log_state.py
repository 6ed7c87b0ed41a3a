"""The core's view of the log: its end, the start of each epoch, the end on disk, and the snapshots. No records.

A log of KRaft begins at offset 0 or at the end of a snapshot. `check` compares the end of another replica's log with
this log; see there why that suffices to compare the logs.
"""

from __future__ import annotations

from ottla.common.values import value
from ottla.raft.values import BOOTSTRAP_SNAPSHOT, LogEnd, SnapshotId

EMPTY = LogEnd(0, 0)


@value
class Diverged:
    """The other log contains records that this log does not. Both agree at most up to `end`."""

    end: LogEnd


@value
class NeedsSnapshot:
    """The other log ends before this log's start, so that it continues with this snapshot."""

    snapshot: SnapshotId


class LogState:
    """The log's bounds, and what the shell does to it now.

    `end` and the epochs change with each append, `flushed_offset` with each flush.
    """

    def __init__(self) -> None:
        self.start_offset = 0
        self.end = EMPTY
        self.flushed_offset = 0
        self.is_flushing = False
        self.is_appending = False
        """The shell is about to append fetched records, so that the next fetch has to wait for their end."""
        self._epoch_starts: list[tuple[int, int]] = []
        self._snapshots: dict[SnapshotId, int] = {}

    def load(self, start_offset: int, end: LogEnd, flushed_offset: int, starts: tuple[tuple[int, int], ...]) -> None:
        """Take over the state of the log at the node's start."""
        self.start_offset = start_offset
        self.end = end
        self.flushed_offset = flushed_offset
        self._epoch_starts = list(starts)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def set_snapshots(self, snapshots: tuple[tuple[SnapshotId, int], ...], start_offset: int) -> None:
        """Take over which snapshots exist, with their size in bytes, and where the log starts after a deletion."""
        self._snapshots = dict(snapshots)
        self.start_offset = max(self.start_offset, start_offset)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        """The size of a snapshot in bytes; None if it does not exist or is not sent."""
        return None if snapshot == BOOTSTRAP_SNAPSHOT else self._snapshots.get(snapshot)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The snapshot with the highest end that may be sent."""
        return max((each for each in self._snapshots if each != BOOTSTRAP_SNAPSHOT), default=None)

    @property
    def _start_epoch(self) -> int:
        """The epoch of the record before the log's start, from the snapshot that ends there."""
        ends = (each for each in self._snapshots if each.end_offset == self.start_offset)
        return max((each.epoch for each in ends), default=0)

    def start_at(self, snapshot: SnapshotId, size: int) -> None:
        """Replace the log with a snapshot of `size` bytes: it is empty and continues at the snapshot's end."""
        self._snapshots[snapshot] = size
        self.start_offset = self.flushed_offset = snapshot.end_offset
        self.end = LogEnd(*snapshot)
        self._epoch_starts = [(snapshot.epoch, snapshot.end_offset)]

    # -- records -------------------------------------------------------------------------------------------------

    def append(self, end_offset: int, epoch: int) -> None:
        """Records of one epoch were appended up to `end_offset`."""
        if epoch > self.end.epoch or not self._epoch_starts:
            self._epoch_starts.append((epoch, self.end.offset))
        self.end = LogEnd(end_offset, epoch)

    def flush(self, end_offset: int) -> None:
        """Records below `end_offset` are on disk."""
        self.flushed_offset = max(self.flushed_offset, min(end_offset, self.end.offset))

    @property
    def flushed_end(self) -> LogEnd:
        """The end of the part of the log that is on disk."""
        if self.flushed_offset == self.end.offset:
            return self.end
        epochs = (epoch for epoch, start in reversed(self._epoch_starts) if start < self.flushed_offset)
        return LogEnd(self.flushed_offset, next(epochs, self._start_epoch))

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on."""
        while self._epoch_starts and self._epoch_starts[-1][1] >= offset:
            self._epoch_starts.pop()
        epoch = self._epoch_starts[-1][0] if self._epoch_starts else self._start_epoch
        self.end = LogEnd(offset, epoch)
        self.flushed_offset = min(self.flushed_offset, offset)

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """The end of the latest epoch in this log that is not later than `epoch`."""
        end_offset = self.end.offset
        for known, start in reversed(self._epoch_starts):
            if known <= epoch:
                return LogEnd(end_offset, known)
            end_offset = start
        return LogEnd(self.start_offset, self._start_epoch)

    def common_end(self, other: LogEnd) -> int:
        """Where to truncate this log, when `other` is the end of an epoch in the leader's log."""
        own = self.end_of_epoch(other.epoch)
        return min(own.offset, other.offset) if own.epoch == other.epoch else own.offset

    def check(self, other: LogEnd) -> Diverged | NeedsSnapshot | None:
        """Compare the end of another log with this log; None if the other log is a prefix of this one.

        It is a prefix if this log has a record of the other's last epoch just before the other's end. Two logs with a
        record of the same epoch at the same offset are equal up to it, because an epoch has one leader, which writes
        each offset once.

        Otherwise the logs diverge. The other replica truncates to the end of the latest common epoch and fetches
        again. Each such round moves it back by at least one epoch, so that the number of rounds is at most the number
        of differing epochs. Cost: a scan back over the epochs after the other's.
        """
        snapshot = self.latest_snapshot
        if other.offset == 0 and snapshot is not None:
            return NeedsSnapshot(snapshot)  # A snapshot is shorter than the log that it replaces.
        if other == EMPTY and self.start_offset == 0:
            return None
        is_before_start = other.offset < self.start_offset or other.epoch < self._start_epoch
        if snapshot is not None and is_before_start:
            return NeedsSnapshot(snapshot)
        own = self.end_of_epoch(other.epoch)
        return Diverged(own) if own.epoch != other.epoch or own.offset < other.offset else None
