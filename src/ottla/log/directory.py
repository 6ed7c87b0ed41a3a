"""`LogDirectory`: one of log.dirs, with its lock, its identity and its checkpoints.

A directory goes offline when its disk fails (`fail`); its logs then raise KAFKA_STORAGE_ERROR. The log manager calls
`prepare` before it opens logs and `write` for each checkpoint. The metadata log uses a directory without either: the
lock and the checkpoints belong to the manager.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.common.rate_limit import RateLimitedLog
from ottla.common.shortage import is_shortage
from ottla.common.values import value
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

logger = logging.getLogger(__name__)
# Every request that needs a file fails during a shortage: one line in ten seconds is enough.
_shortages = RateLimitedLog(logger, lines=1, period_s=10.0)

# Recovery can rebuild what these checkpoints contain, so one copy of each entry is enough.
_REBUILDABLE = (RECOVERY_POINTS, HIGH_WATERMARKS)


@value
class Opening:
    """The checkpoints' entries for a log, before its directory is read.

    `recovery_point` is the end offset of the log after a clean shutdown. Below `cleaned_to`, the log was compacted.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_to: int = 0


@value
class DirectoryInfo:
    """A description of a log directory. The sizes of its volume are -1 while it is offline."""

    path: str
    directory_id: Uuid
    online: bool
    total_bytes: int
    usable_bytes: int


class LogDirectory:
    """One of log.dirs. `on_failure` is called once, on the thread that met the error."""

    def __init__(
        self, path: str, files: Files, on_failure: Callable[[LogDirectory, OSError], None] | None = None
    ) -> None:
        self.path = path
        self.files = files
        self.online = True
        self.is_cordoned = False
        """Whether new partitions are created elsewhere, if they can be. KIP-1066."""
        self._on_failure = on_failure
        self.lock = storage.DirectoryLock(path)
        self.directory_id: Uuid = ZERO_UUID
        self.was_clean = False
        self.broker_epoch = -1
        self.writing = threading.Lock()
        """Held while a checkpoint of the directory is written."""
        self.named: dict[str, AbstractSet[TopicPartition]] = {}
        """The partitions in each checkpoint file, including partitions deleted since the file was written."""
        self.overdue: set[str] = set()
        """Checkpoints that could not be written because descriptors or memory ran out."""

    # Failures

    def fail(self, error: OSError) -> None:
        """Take the directory offline, unless the error is a shortage of descriptors or memory."""
        if is_shortage(error):
            _shortages.warning("An operation in log directory %s failed and can be retried: %s", self.path, error)
        else:
            self.take_offline(error)

    def take_offline(self, error: OSError) -> None:
        """Take the directory offline for any error: its files may be in an inconsistent state."""
        if self.online:
            self.online = False
            logger.error("Stopping serving logs in dir %s: %s", self.path, error)
            if self._on_failure is not None:
                self._on_failure(self, error)

    # Starting

    def prepare(self) -> None:
        """Create the directory if it is missing, lock it, and read how the last run ended."""
        self.files.make_directory(self.path)
        self.lock.acquire()
        meta = storage.read_meta(self.files, self.path)
        self.directory_id = meta.directory_id if meta else ZERO_UUID
        epoch = storage.take_clean_shutdown(self.files, self.path)
        self.was_clean = epoch is not None
        self.broker_epoch = -1 if epoch is None else epoch

    def log_start_of_loading(self, count: int) -> None:
        """Log that `count` partitions will be opened, and whether they need recovery."""
        if not count:
            logger.info("No logs found to be loaded in %s", self.path)
        elif self.was_clean:
            logger.info("Skipping recovery of %d logs from %s since clean shutdown file was found", count, self.path)
        else:
            logger.info("Recovering %d logs from %s since no clean shutdown file was found", count, self.path)

    # Checkpoints

    def openings(self) -> dict[TopicPartition, Opening]:
        """The checkpoints' entries for each partition."""
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
            # Without the checkpoint, logs are read from their start, which is slow but safe.
            logger.warning("Error occurred while reading %s file of directory %s: %s", name, self.path, error)
            offsets = {}
        self.named[name] = offsets.keys()
        return offsets

    def write(self, name: str, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Write a checkpoint with the offsets that `collect` returns. May run in another thread.

        `collect` runs under the directory's checkpoint lock, so a later writer never writes older offsets. If
        descriptors or memory run out, the checkpoint becomes `overdue`.
        """
        if not self.online:
            return
        with self.writing:
            offsets = collect()
            # Update `named` before the write: a partition that is recreated meanwhile must wait for this checkpoint.
            self.named[name] = self.named.get(name, frozenset()) | offsets.keys()
            try:
                write_offsets(self.files, self.path, name, offsets, copies=1 if name in _REBUILDABLE else COPIES)
            except OSError as error:
                self.overdue.add(name)
                self.fail(error)
            else:
                self.overdue.discard(name)
                self.named[name] = offsets.keys()
