"""The leader epochs of a partition and the offset where each began (`leader-epoch-checkpoint`). KIP-101, KIP-279.

Followers and consumers query where an epoch ended to find out whether their log diverged. Changes stay in memory until
`write`, which the log's flush calls before the recovery point moves: recovery reads later epochs from the batches. The
file is byte for byte what Kafka writes; `epoch_check` compares it with the batches when the log is opened.
"""

import logging
from itertools import pairwise
from typing import NamedTuple

from ottla.log.checkpoints import LEADER_EPOCHS, CorruptCheckpointError, format_lines, read_lines
from ottla.log.files import Files

logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first batch."""

    epoch: int
    start_offset: int


def read_entries(files: Files, path: str) -> list[tuple[int, int]]:
    """The entries of a checkpoint. Raises CorruptCheckpointError or ValueError.

    Ottla 0.1 wrote each entry twice; the copies are ignored.
    """
    entries = [(int(epoch), int(start)) for epoch, start in read_lines(files, path, 2)]
    return entries[::2] if entries[::2] == entries[1::2] else entries


class LeaderEpochs:
    """The entries, which rise in both fields; `latest` is the newest epoch, -1 without an entry."""

    __slots__ = ("_dirty", "_entries", "directory", "files", "is_corrupt", "latest")

    def __init__(self, files: Files, directory: str, entries: list[EpochEntry] | None = None) -> None:
        self.files = files
        self.directory = directory
        self._replace(entries or [])
        self.is_corrupt = False
        """Whether the checkpoint file is corrupt, so that the epochs must be read from the batches."""

    def _replace(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else -1
        # Whether the entries differ from the file.
        self._dirty = True

    @classmethod
    def load(cls, files: Files, directory: str) -> "LeaderEpochs":
        """Read the checkpoint; empty if the file is missing."""
        path = f"{directory}/{LEADER_EPOCHS}"
        epochs = cls(files, directory)
        try:
            entries = read_entries(files, path)
            if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
                raise CorruptCheckpointError(f"The entries in {path} do not rise")
        except (ValueError, CorruptCheckpointError) as error:
            logger.warning("Rebuilding the leader epochs of %s from its batches: %s", directory, error)
            epochs.is_corrupt = True
            return epochs
        for epoch, start in entries:
            epochs.assign(epoch, start)
        epochs._dirty = not files.exists(path)
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` has a batch at `start_offset`; entries that contradict it are removed."""
        if epoch < 0 or start_offset < 0:
            return
        last = self._entries[-1] if self._entries else None
        if last is not None and epoch == last.epoch and start_offset >= last.start_offset:
            return
        consistent = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._replace([*consistent, EpochEntry(epoch, start_offset)])

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest epoch not above `epoch`, and the offset where it ended; (-1, -1) if unknown."""
        entries = self._entries
        if epoch < 0 or not entries:
            return -1, -1
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        following = next((e for e in entries if e.epoch > epoch), None)
        if following is None:
            return -1, -1
        floor = next((e for e in reversed(entries) if e.epoch <= epoch), None)
        return (floor.epoch if floor else epoch), following.start_offset

    def at(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 if unknown."""
        return next((e.epoch for e in reversed(self._entries) if e.start_offset <= offset), -1)

    def truncate_from_end(self, offset: int) -> None:
        """Remove epochs that start at or after the log's new end."""
        remaining = [e for e in self._entries if e.start_offset < offset]
        if len(remaining) < len(self._entries):
            self._replace(remaining)

    def truncate_from_start(self, offset: int) -> None:
        """Remove epochs before the log's new start; the epoch that holds the start begins there."""
        before = [e for e in self._entries if e.start_offset <= offset]
        if before and before[-1].start_offset < offset:
            self._replace([EpochEntry(before[-1].epoch, offset), *self._entries[len(before) :]])
        elif len(before) > 1:
            self._replace(self._entries[len(before) - 1 :])

    def take_over(self, other: "LeaderEpochs", end_offset: int) -> None:
        """Use the entries of the log whose records up to `end_offset` were copied.

        The batches of a compacted log no longer show where each epoch began: a follower that has other records there
        would not truncate them.
        """
        entries = [e for e in other.entries if e.start_offset < end_offset]
        if entries != self._entries:
            self._replace(entries)

    def clear(self) -> None:
        """Remove all entries."""
        self._replace([])

    def write(self) -> None:
        """Write the checkpoint durably if it changed. May run in another thread than the changes."""
        if self._dirty:
            self._dirty = False
            lines = [f"{e.epoch} {e.start_offset}" for e in self._entries]
            try:
                self.files.write_atomically(f"{self.directory}/{LEADER_EPOCHS}", format_lines(lines))
            except OSError:
                self._dirty = True
                raise
