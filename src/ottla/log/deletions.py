"""Files and folders of deleted logs: renamed at once, removed in the background when their delay is over."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from ottla.common.clock import Clock
from ottla.common.ids import TopicPartition
from ottla.common.shortage import is_shortage
from ottla.log.directory import LogDirectory
from ottla.log.directory_names import DELETE_SUFFIX, marked_name
from ottla.log.files import Files
from ottla.log.segment import DELETED

logger = logging.getLogger(__name__)

_LOG_DELETED = ".log" + DELETED
_LONGEST_DELAY_MS = 3_600_000


class Deletions:
    """The folders of the deleted logs of one broker. Errors of a disk take its log directory offline."""

    def __init__(
        self, files: Files, clock: Clock, in_background: Callable[[Callable[[], None]], object], delay_ms: int
    ) -> None:
        self._files = files
        self._clock = clock
        self._in_background = in_background
        self._delay_ms = delay_ms
        # Folders, with the time at which to remove each.
        self._due: list[tuple[int, LogDirectory, str]] = []
        # Folders that could not be removed in a shortage; the removing thread fills this.
        self._undeleted: deque[tuple[LogDirectory, str]] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, directory: LogDirectory, path: str, delay_ms: int | None = None) -> None:
        """Remove a folder that was renamed before."""
        delay_ms = self._delay_ms if delay_ms is None else delay_ms
        self._due.append((self._clock.wall_ms() + delay_ms, directory, path))

    def set_aside(
        self, topic_partition: TopicPartition, directory: LogDirectory, path: str, delay_ms: int | None = None
    ) -> bool:
        """Rename the folder of a log, and remove it later; False if the disk failed."""
        renamed = f"{directory.path}/{marked_name(topic_partition, DELETE_SUFFIX)}"
        try:
            self._files.rename(path, renamed)
        except OSError as error:
            directory.fail(error)  # when the disk works again, the next start marks the directory as stray
            return False
        self.add(directory, renamed, delay_ms)
        logger.info("Log for partition %s is renamed to %s and is scheduled for deletion", topic_partition, renamed)
        return True

    def sync_names(self, directories: Iterable[LogDirectory]) -> None:
        """Sync the names of the folders in these directories."""
        for directory in directories:
            try:
                self._files.fsync_directory(directory.path)
            except OSError as error:
                directory.fail(error)

    def remove_due(self, now_ms: int, files: list[tuple[LogDirectory, list[str]]]) -> None:
        """Remove `files`, and the folders whose delay is over, in the background."""
        latest = now_ms + max(self._delay_ms, _LONGEST_DELAY_MS)  # later: the clock was set back
        folders = [(where, path) for moment, where, path in self._due if not now_ms < moment <= latest]
        self._due = [entry for entry in self._due if now_ms < entry[0] <= latest]
        while self._undeleted:
            folders.append(self._undeleted.popleft())
        if files or folders:
            self._in_background(lambda: self._remove(files, folders))

    def _remove(self, files: list[tuple[LogDirectory, list[str]]], folders: list[tuple[LogDirectory, str]]) -> None:
        for directory, paths in files:
            try:
                for path in paths:
                    self._files.unlink(path)
                    if path.endswith(_LOG_DELETED):
                        logger.info("Deleted log %s.", path)
            except OSError as error:
                directory.fail(error)
        for directory, path in folders:
            try:
                self._files.remove_tree(path)
                logger.info("Deleted log for partition %s in %s.", path.rpartition("/")[2].rpartition(".")[0], path)
            except OSError as error:
                directory.fail(error)
                if is_shortage(error):
                    self._undeleted.append((directory, path))
