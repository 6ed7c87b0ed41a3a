"""One of log.dirs: its identity, its lock, and the checkpoints that tell the next start about its logs."""

import logging
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log import storage
from ottla.log.checkpoints import (
    CLEANER_OFFSETS,
    COPIES,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from ottla.log.files import Files
from ottla.log.home import Home
from ottla.log.recovery import Opening

logger = logging.getLogger(__name__)

# Recovery finds out by itself what they tell.
_TOLD_ELSEWHERE = (RECOVERY_POINTS, HIGH_WATERMARKS)


class LogDirectory(Home):
    """One of log.dirs: identity, lock, checkpoints."""

    def __init__(self, path: str, files: Files, on_failure: Callable[[Home, OSError], None]) -> None:
        super().__init__(path, files, on_failure)
        self.lock = storage.DirectoryLock(path)
        self.directory_id: Uuid = ZERO_UUID
        self.was_clean = False
        self.broker_epoch = -1
        self.writing = threading.Lock()
        """Held by whoever writes one of its checkpoints."""
        self.named: dict[str, AbstractSet[TopicPartition]] = {}
        """The partitions that each of its checkpoints names, deleted ones too, until it is written again."""
        self.overdue: set[str] = set()
        """Checkpoints that a shortage of descriptors kept from being written."""

    def prepare(self) -> None:
        """Create it if it is missing, lock it, see how the last run ended."""
        self.files.make_directory(self.path)
        self.lock.acquire()
        meta = storage.read_meta(self.files, self.path)
        self.directory_id = meta.directory_id if meta else ZERO_UUID
        epoch = storage.take_clean_shutdown(self.files, self.path)
        self.was_clean = epoch is not None
        self.broker_epoch = -1 if epoch is None else epoch

    def log_start_of_loading(self, count: int) -> None:
        """Log that `count` partitions are to be opened, and whether they need recovery."""
        if not count:
            logger.info("No logs found to be loaded in %s", self.path)
        elif self.was_clean:
            logger.info("Skipping recovery of %d logs from %s since clean shutdown file was found", count, self.path)
        else:
            logger.info("Recovering %d logs from %s since no clean shutdown file was found", count, self.path)

    def openings(self) -> dict[TopicPartition, Opening]:
        """What the checkpoints say of each partition."""
        points = self._offsets(RECOVERY_POINTS)
        starts = self._offsets(LOG_STARTS)
        watermarks = self._offsets(HIGH_WATERMARKS)
        cleaned = self._offsets(CLEANER_OFFSETS)
        return {
            tp: Opening(self.was_clean, points.get(tp, 0), starts.get(tp, 0), watermarks.get(tp, 0), cleaned.get(tp, 0))
            for tp in {*points, *starts, *watermarks, *cleaned}
        }

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            offsets = read_offsets(self.files, self.path, name)
        except CorruptCheckpointError as error:
            # Without it the logs are read from their start, which is slow and safe.
            logger.warning("Error occurred while reading %s file of directory %s: %s", name, self.path, error)
            offsets = {}
        self.named[name] = offsets.keys()
        return offsets

    def write(self, name: str, look: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Write a checkpoint of what `look` finds when it is its turn. May run in another thread.

        A checkpoint that a shortage kept from being written is `overdue` then.
        """
        if not self.online:
            return
        with self.writing:
            offsets = look()
            # Before it is written: whoever recreates one of them meanwhile has to wait for it.
            self.named[name] = self.named.get(name, frozenset()) | offsets.keys()
            try:
                write_offsets(self.files, self.path, name, offsets, copies=1 if name in _TOLD_ELSEWHERE else COPIES)
            except OSError as error:
                self.overdue.add(name)
                self.fail(error)
            else:
                self.overdue.discard(name)
                self.named[name] = offsets.keys()
