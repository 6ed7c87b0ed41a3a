"""`LogManager`: the log directories of one broker and the logs in them.

A new partition goes to the online directory with the fewest. A directory whose disk fails goes offline alone: its
logs raise KAFKA_STORAGE_ERROR and `on_directory_failed` is called, on the thread that met the error. After `load`,
one thread calls everything; `checkpoint` and `Log.flush` may run in another one, and `in_background` is given what may
take long and needs no answer (removing files).

Duties of the owner, at the intervals of the settings: `cleanup`, `expire_producers`, `remove_deleted`,
`checkpoint_recovery_points`, `checkpoint_log_starts` and `checkpoint_high_watermarks`; `close` at the end.
Compaction is the `Cleaner`'s.
"""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ottla.common.clock import Clock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC, ZERO_UUID, TopicPartition, Uuid
from ottla.common.shortage import ShortageError, is_shortage
from ottla.log import storage
from ottla.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_topic_id,
)
from ottla.log.config import LogConfig
from ottla.log.context import LogContext
from ottla.log.directory import LogDirectory, Opening
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.log.open_files import MOST_OPEN, OpenFiles
from ottla.log.recovery import create_log, open_log
from ottla.log.segment import DELETED

logger = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
_LOG_DELETED = ".log" + DELETED
_MAX_NAME = 255
_LONGEST_DELAY_MS = 3_600_000
_SYNCING_THREADS = 8
_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_MARKED_NAME = re.compile(r".+-\d+\.[0-9a-f]{32}(?P<suffix>-delete|-stray|-future)")


@dataclass(frozen=True, slots=True)
class DirectoryInfo:
    """A log directory as others see it. Sizes of the volume are -1 while it is offline."""

    path: str
    directory_id: Uuid
    online: bool
    total_bytes: int
    usable_bytes: int


class LogManager:
    """See the module's docstring. Directories are used in the order given where nothing else decides."""

    def __init__(
        self,
        directories: Iterable[str],
        clock: Clock,
        defaults: LogConfig | None = None,
        on_directory_failed: Callable[[DirectoryInfo, OSError], None] | None = None,
        *,
        files: Files | None = None,
        in_background: Callable[[Callable[[], None]], object] | None = None,
        max_open_files: int = MOST_OPEN,
    ) -> None:
        self.clock = clock
        self.defaults = defaults or LogConfig()
        self.files = files or Files()
        self.open_files = OpenFiles(max_open_files)
        self.files.release_descriptor = self.open_files.release_descriptor
        self._on_directory_failed = on_directory_failed
        self._in_background = in_background or (lambda work: work())
        paths = list(dict.fromkeys(path.rstrip("/") or "/" for path in directories))
        if not paths:
            raise storage.StorageError("log.dirs names no directory")
        self._directories = [LogDirectory(path, self.files, self._failed) for path in paths]
        self._logs: dict[TopicPartition, Log] = {}
        # Directories of deleted partitions, with the moment to remove them.
        self._doomed: list[tuple[int, LogDirectory, str]] = []
        # Directories that a shortage kept from being removed; filled by the thread that removes.
        self._unremoved: deque[tuple[LogDirectory, str]] = deque()
        self._acquired = False
        self.has_descriptor: Callable[[], bool] = lambda: True
        """Whether the process may have one more open file, for a new log."""

    # Starting

    def acquire(self) -> None:
        """Lock the directories, and see how the last run ended; `load` does it unless it was done before."""
        if self._acquired:
            return
        self._acquired = True
        for directory in self._directories:
            try:
                directory.prepare()
            except OSError as error:
                _refuse_shortage(error)
                directory.fail(error)

    def load(
        self,
        config_for: Callable[[str], LogConfig] | None = None,
        is_stray: Callable[[TopicPartition, Uuid], bool] | None = None,
    ) -> None:
        """Lock the directories and open every partition in them; each is recovered if the last run did not end well.

        `config_for(topic)` gives the topic's configuration. A partition for which `is_stray(partition, topic id)` holds
        is renamed `...-stray` and left alone. Raises StorageError if a directory is in use or a partition is in two;
        a disk that fails takes its directory offline, and StorageError is raised if none is left.
        """
        self.acquire()
        started_ms = self.clock.monotonic_ms()
        logger.info("Loading logs from log dirs %s", ", ".join(each.path for each in self._directories if each.online))
        for directory in self._directories:
            if directory.online:
                try:
                    self._load_directory(directory, config_for, is_stray)
                except OSError as error:
                    _refuse_shortage(error)
                    directory.fail(error)
        logger.info("Loaded %d logs in %dms", len(self._logs), self.clock.monotonic_ms() - started_ms)
        self._flush_found()
        if not any(directory.online for directory in self._directories):
            raise storage.StorageError("None of the log directories can be used; see the lines above")

    def _flush_found(self) -> None:
        """What a killed process left with the system is read, and answered for, when it is on disk, if answers are."""
        now_ms = self.clock.wall_ms()

        def flush(log: Log) -> None:
            try:
                log.flush()
            except KafkaError as error:
                logger.warning("%s cannot be served: %s", log.topic_partition, error)

        due = [log for log in self._logs.values() if log.log_directory.online and log.needs_flush(now_ms)]
        self._flush_all(due, flush)

    def _load_directory(
        self,
        directory: LogDirectory,
        config_for: Callable[[str], LogConfig] | None,
        is_stray: Callable[[TopicPartition, Uuid], bool] | None,
    ) -> None:
        openings = directory.openings()
        names = ((name, f"{directory.path}/{name}") for name in self.files.list(directory.path))
        found = [(path, tp) for name, path in names if (tp := self._partition_of(directory, name, path)) is not None]
        directory.log_start_of_loading(len(found))
        for count, (path, tp) in enumerate(found, 1):
            started_ms = self.clock.monotonic_ms()
            if is_stray is not None and is_stray(tp, read_topic_id(self.files, path)):
                stray = f"{directory.path}/{marked_name(tp, STRAY_SUFFIX)}"
                logger.warning("Log in %s marked stray and renamed to %s", path, stray)
                self.files.rename(path, stray)
                continue
            if tp in self._logs:
                raise storage.StorageError(
                    f"{tp} is in two log directories, {self._logs[tp].directory} and {path}; remove one"
                )
            config = config_for(tp.topic) if config_for else self.defaults
            opening = openings.get(tp, Opening(directory.was_clean))
            context = LogContext(directory, tp, path=path, clock=self.clock, open_files=self.open_files)
            log = open_log(context, config, opening=opening)
            self._logs[tp] = log
            logger.info(
                "Completed load of %s with %d segments, local-log-start-offset %d and log-end-offset %d in %dms"
                " (%d/%d completed in %s)",
                log, len(log.segments), log.log_start_offset, log.log_end_offset,
                self.clock.monotonic_ms() - started_ms, count, len(found), directory.path,
            )  # fmt: skip

    def _partition_of(self, directory: LogDirectory, name: str, path: str) -> TopicPartition | None:
        if not self.files.is_directory(path):
            return None
        if marked := _MARKED_NAME.fullmatch(name):
            if marked["suffix"] == DELETE_SUFFIX:
                self._doomed.append((self.clock.wall_ms() + self.defaults.file_delete_delay_ms, directory, path))
            elif marked["suffix"] == FUTURE_SUFFIX:
                logger.warning("Skipping %s: moving partitions between directories is not supported", path)
            return None
        match = _PARTITION_NAME.fullmatch(name)
        if match is None:
            logger.warning("Skipping %s: it is not a partition directory", path)
            return None
        if match["topic"] == METADATA_TOPIC:
            return None
        return TopicPartition(match["topic"], int(match["partition"]))

    # The logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, if there is one (its directory may be offline)."""
        return self._logs.get(topic_partition)

    @property
    def count(self) -> int:
        """How many logs there are, each with an open file for its active segment."""
        return len(self._logs)

    @property
    def open_file_count(self) -> int:
        """About how many files the logs have open."""
        return len(self._logs) + self.open_files.count

    def all(self) -> list[Log]:
        """Every log."""
        return list(self._logs.values())

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Log:
        """The partition's log, created empty if there is none. `overrides` are the topic's own settings, for the log.

        Raises KafkaError: INCONSISTENT_TOPIC_ID if one of an older topic of that name is there (delete it first),
        KAFKA_STORAGE_ERROR if no directory is online or the disk fails; ShortageError if it can be retried.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if topic_id not in {ZERO_UUID, log.topic_id} and log.topic_id != ZERO_UUID:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} is of another topic's life")
            return log
        directory = self._emptiest_directory()
        if not self.has_descriptor():
            raise ShortageError(f"Cannot create {topic_partition}: raise the limit of open files (ulimit -n)")
        self._forget_namesake(directory, topic_partition)
        problem = f"Cannot create {topic_partition} in {directory.path}"
        if not directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        if any(topic_partition in directory.named.get(name, ()) for name in _BELIEVED):
            raise ShortageError(f"{problem}: a checkpoint that names it could not be written")
        path = f"{directory.path}/{topic_partition}"
        context = LogContext(directory, topic_partition, path=path, clock=self.clock, open_files=self.open_files)
        config = config or self.defaults
        try:
            if self.files.exists(path):
                log = open_log(context, config, topic_id=topic_id)
            else:
                log = create_log(context, config, topic_id)
        except OSError as error:
            directory.fail(error)
            if is_shortage(error):
                raise ShortageError(f"{problem}: {error}") from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{problem}: {error}") from error
        self._logs[topic_partition] = log
        properties = ", ".join(f"{name}={value}" for name, value in sorted((overrides or {}).items()))
        logger.info("Created log for partition %s in %s with properties {%s}", topic_partition, path, properties)
        return log

    def _emptiest_directory(self) -> LogDirectory:
        directories = [directory for directory in self._directories if directory.online]
        if not directories:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No log directory is online")
        if len(directories) == 1:
            return directories[0]
        counts = {id(directory): 0 for directory in directories}
        for log in self._logs.values():
            if id(log.log_directory) in counts:
                counts[id(log.log_directory)] += 1
        return min(directories, key=lambda directory: counts[id(directory)])

    def delete(self, topic_partitions: Iterable[TopicPartition]) -> int:
        """Forget partitions, those that are there: directories are renamed now, and removed after file.delete.delay.ms.

        How many there were. That the new names are on disk is waited for in the background: should a power cut bring an
        old name back, nobody knows its topic, and the next start sets it aside.
        """
        directories: dict[int, LogDirectory] = {}
        count = 0
        for topic_partition in topic_partitions:
            log = self._logs.pop(topic_partition, None)
            if log is None:
                continue
            count += 1
            log.abandon()
            directory = log.log_directory
            if directory.online and self._set_aside(log, directory):
                directories[id(directory)] = directory
        if directories:
            self._in_background(lambda: self._sync_names(directories.values()))
        return count

    def _set_aside(self, log: Log, directory: LogDirectory) -> bool:
        path = f"{directory.path}/{marked_name(log.topic_partition, DELETE_SUFFIX)}"
        try:
            self.files.rename(log.directory, path)
        except OSError as error:
            directory.fail(error)  # with its directory back, the next start sets it aside
            return False
        self._doomed.append((self.clock.wall_ms() + log.config.file_delete_delay_ms, directory, path))
        logger.info("Log for partition %s is renamed to %s and is scheduled for deletion", log.topic_partition, path)
        return True

    def _sync_names(self, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            try:
                self.files.fsync_directory(directory.path)
            except OSError as error:
                directory.fail(error)

    # Directories

    def directories(self) -> list[DirectoryInfo]:
        """All of log.dirs, offline ones too."""
        return [self._info(directory) for directory in self._directories]

    def log_directories(self) -> list[LogDirectory]:
        """The directories themselves, for the cleaner and for the metadata log."""
        return list(self._directories)

    def _info(self, directory: LogDirectory) -> DirectoryInfo:
        total = usable = -1
        if directory.online:
            try:
                total, usable = self.files.space(directory.path)
            except OSError as error:
                directory.fail(error)
        return DirectoryInfo(directory.path, directory.directory_id, directory.online, total, usable)

    def _failed(self, directory: LogDirectory, error: OSError) -> None:
        if self._on_directory_failed is not None:
            self._on_directory_failed(DirectoryInfo(directory.path, directory.directory_id, False, -1, -1), error)

    # Upkeep

    def cleanup(self, now_ms: int) -> int:
        """Retention of every log, then `remove_deleted`; how many segments went."""
        count = 0
        for log in self.all():
            if not log.log_directory.online:
                continue
            try:
                count += log.delete_old_segments(now_ms)
            except KafkaError as error:
                logger.warning("Retention of %s failed: %s", log.topic_partition, error)
        self.remove_deleted(now_ms)
        return count

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        for log in self._logs.values():
            log.producers.expire(now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove, in the background, the files and directories whose file.delete.delay.ms is over."""
        doomed = [
            (log.log_directory, paths)
            for log in self._logs.values()
            if log.log_directory.online and (paths := log.segments.take_due_deletions(now_ms))
        ]
        latest = now_ms + max(self.defaults.file_delete_delay_ms, _LONGEST_DELAY_MS)  # beyond: the clock was set back
        trees = [(where, path) for moment, where, path in self._doomed if not now_ms < moment <= latest]
        self._doomed = [entry for entry in self._doomed if now_ms < entry[0] <= latest]
        while self._unremoved:
            trees.append(self._unremoved.popleft())
        if doomed or trees:
            self._in_background(lambda: self._remove(doomed, trees))

    def _remove(self, doomed: list[tuple[LogDirectory, list[str]]], trees: list[tuple[LogDirectory, str]]) -> None:
        for directory, paths in doomed:
            try:
                for path in paths:
                    self.files.unlink(path)
                    if path.endswith(_LOG_DELETED):
                        logger.info("Deleted log %s.", path)
            except OSError as error:
                directory.fail(error)
        for directory, path in trees:
            try:
                self.files.remove_tree(path)
                logger.info("Deleted log for partition %s in %s.", path.rpartition("/")[2].rpartition(".")[0], path)
            except OSError as error:
                directory.fail(error)
                if is_shortage(error):
                    self._unremoved.append((directory, path))

    def checkpoint(self) -> None:
        """Write recovery points and log starts of every directory. May run in another thread."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()

    def checkpoint_recovery_points(self) -> None:
        """Write up to where each log is on disk for certain, and what is overdue. May run in another thread."""
        self._checkpoint(RECOVERY_POINTS, self._directories)
        for directory in self._directories:
            for name in tuple(directory.overdue):
                self._checkpoint(name, [directory])

    def checkpoint_log_starts(self) -> None:
        """Write the log starts that the files' names do not tell. May run in another thread."""
        self._checkpoint(LOG_STARTS, self._directories)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of every directory. May run in another thread."""
        self._checkpoint(HIGH_WATERMARKS, self._directories)

    def checkpoint_cleaned(self, log: Log) -> None:
        """Write up to where each log in the directory of this one was compacted."""
        self._checkpoint(CLEANER_OFFSETS, [log.log_directory])

    def _checkpoint(self, name: str, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            directory.write(name, partial(self._told, name, directory))

    def _told(self, name: str, directory: LogDirectory) -> dict[TopicPartition, int]:
        tell = _CHECKPOINTS[name]
        told = ((log.topic_partition, tell(log)) for log in self.all() if log.log_directory is directory)
        return {topic_partition: offset for topic_partition, offset in told if offset is not None}

    def _forget_namesake(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """See that no checkpoint takes a new log for one of its name that was deleted: its records would be hidden."""
        for name in _BELIEVED:
            if topic_partition in directory.named.get(name, ()):
                self._checkpoint(name, [directory])

    # The end

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log, write the checkpoints and, where all went well, the clean-shutdown file; unlock."""
        dirty: set[int] = set()

        def tried(log: Log, step: Callable[[], object]) -> bool:
            try:
                return bool(step())
            except KafkaError as error:
                logger.warning("Error while closing the log of %s: %s", log.topic_partition, error)
                dirty.add(id(log.log_directory))
                return False

        logger.info("Shutting down.")
        logs = self.all()
        self._flush_all([log for log in logs if tried(log, log.finish)], lambda log: tried(log, log.flush))
        for log in logs:
            log.abandon()
        self.checkpoint()
        self.checkpoint_high_watermarks()
        for directory in self._directories:
            if directory.online and id(directory) not in dirty:
                try:
                    storage.write_clean_shutdown(self.files, directory.path, broker_epoch)
                except OSError as error:
                    directory.fail(error)
            directory.lock.release()
        logger.info("Shutdown complete.")

    @staticmethod
    def _flush_all(logs: list[Log], flush: Callable[[Log], object]) -> None:
        """Several at a time: file systems make one write to their journal out of fsyncs that wait together."""
        if len(logs) <= _SYNCING_THREADS:
            for log in logs:
                flush(log)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_SYNCING_THREADS, thread_name_prefix="ottla-sync") as threads:
            list(threads.map(flush, logs))

    def abandon(self) -> None:
        """Close files and locks and write nothing: what a crash leaves."""
        for log in self.all():
            log.abandon()
        for directory in self._directories:
            directory.lock.release()


def _refuse_shortage(error: OSError) -> None:
    """A start without the descriptors for its logs is refused: no directory is at fault."""
    if is_shortage(error):
        raise storage.StorageError(
            f"The logs cannot be opened: {error}. Each partition needs an open file; raise the limit (ulimit -n)"
        ) from error


def _untold_start(log: Log) -> int | None:
    start = log.log_start_offset
    return start if start > log.segments[0].base_offset else None


def _cleaned_to(log: Log) -> int | None:
    return log.segments.cleaned_to or None


# What each tells of a log; None is nothing.
_CHECKPOINTS: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.flushed_offset,
    LOG_STARTS: _untold_start,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    CLEANER_OFFSETS: _cleaned_to,
}
# Those by which the next start goes.
_BELIEVED = (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)


def marked_name(topic_partition: TopicPartition, suffix: str) -> str:
    """The name of a directory that is not in use: `<topic>-<partition>.<unique><suffix>`, at most 255 bytes."""
    tail = f"-{topic_partition.partition}.{os.urandom(16).hex()}{suffix}"
    return topic_partition.topic[: _MAX_NAME - len(tail)] + tail
