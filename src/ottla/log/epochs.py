"""The leader epochs of a partition and where each began (`leader-epoch-checkpoint`). KIP-101, KIP-279.

Followers and consumers ask where an epoch ended to find out whether their log diverged. Changes are kept in memory
and written by `write`, which the log's flush calls before the recovery point moves: recovery finds the rest in the
batches themselves. The file is what Kafka writes, to the byte; `epoch_check` compares it with the batches when the log
is opened.
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

    Ottla 0.1 wrote each entry twice; such a file is read as if it had each once.
    """
    entries = [(int(epoch), int(start)) for epoch, start in read_lines(files, path, 2)]
    return entries[::2] if entries[::2] == entries[1::2] else entries


class LeaderEpochs:
    """Entries rise in both fields."""

    __slots__ = ("_dirty", "_entries", "directory", "files", "harmed")

    def __init__(self, files: Files, directory: str, entries: list[EpochEntry] | None = None) -> None:
        self.files = files
        self.directory = directory
        self._entries = entries or []
        self._dirty = True
        """There was no file."""
        self.harmed = False
        """The file is corrupt: the entries are to be read from the batches."""

    @classmethod
    def load(cls, files: Files, directory: str) -> "LeaderEpochs":
        """From the checkpoint; empty without one."""
        path = f"{directory}/{LEADER_EPOCHS}"
        epochs = cls(files, directory)
        try:
            entries = read_entries(files, path)
            if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
                raise CorruptCheckpointError(f"The entries in {path} do not rise")
        except (ValueError, CorruptCheckpointError) as error:
            logger.warning("Rebuilding the leader epochs of %s from its batches: %s", directory, error)
            epochs._dirty = epochs.harmed = True
            return epochs
        for epoch, start in entries:
            epochs.assign(epoch, start)
        epochs._dirty = not files.exists(path)
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All of them, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 without one."""
        return self._entries[-1].epoch if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """A batch of `epoch` begins at `start_offset`; entries that contradict it go."""
        if epoch < 0 or start_offset < 0:
            return
        last = self._entries[-1] if self._entries else None
        if last is not None and epoch == last.epoch and start_offset >= last.start_offset:
            return
        kept = [e for e in self._entries if e.epoch < epoch and e.start_offset < start_offset]
        self._entries = [*kept, EpochEntry(epoch, start_offset)]
        self._dirty = True

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The greatest epoch not above `epoch`, and where it ended; (-1, -1) if that cannot be said."""
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
        """The log ends at `offset` now."""
        kept = [e for e in self._entries if e.start_offset < offset]
        if len(kept) < len(self._entries):
            self._entries = kept
            self._dirty = True

    def truncate_from_start(self, offset: int) -> None:
        """The log starts at `offset` now: the epoch that holds it begins there."""
        before = [e for e in self._entries if e.start_offset <= offset]
        if before and before[-1].start_offset < offset:
            rest = self._entries[len(before) :]
            self._entries = [EpochEntry(before[-1].epoch, offset), *rest]
            self._dirty = True
        elif len(before) > 1:
            self._entries = self._entries[len(before) - 1 :]
            self._dirty = True

    def clear(self) -> None:
        """Forget all."""
        self._entries = []
        self._dirty = True

    def write(self) -> None:
        """Write the checkpoint durably if it has changed. May run in another thread than the changes."""
        if self._dirty:
            self._dirty = False
            lines = [f"{e.epoch} {e.start_offset}" for e in self._entries]
            try:
                self.files.write_atomically(f"{self.directory}/{LEADER_EPOCHS}", format_lines(lines))
            except OSError:
                self._dirty = True
                raise
