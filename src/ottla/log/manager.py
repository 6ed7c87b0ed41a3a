"""`LogManager`: the log directories of one broker and the logs in them.

A new partition is created in the online directory with the fewest partitions that is not cordoned, if there is one. A
directory whose disk fails goes offline alone: its logs raise KAFKA_STORAGE_ERROR, and `directory_failed` is called.
After `load`, one thread calls everything; `checkpoint` and `Log.flush` may run in another thread. Slow work without a
result (deleting files) is passed to `in_background`.

Duties of the owner, at the intervals of the settings: `cleanup`, `expire_producers`, `remove_deleted`,
`checkpoint_recovery_points`, `checkpoint_log_starts` and `checkpoint_high_watermarks`; `close` at the end.
Compaction is the `Cleaner`'s.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from ottla.log.deletions import Deletions
from ottla.log.directory import DirectoryInfo, LogDirectory, Opening
from ottla.log.directory_names import DELETE_SUFFIX, FUTURE_SUFFIX, STRAY_SUFFIX, marked_name, parse_name, suffix_of
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.log.manager_ports import NO_PORTS, LogManagerPorts
from ottla.log.open_files import MOST_OPEN, OpenFiles
from ottla.log.planned import PlannedLogs
from ottla.log.recovery import create_log, open_log
from ottla.log.relocation import divergence, partition_of_future, remove_marks, rename_log, replaces

logger = logging.getLogger(__name__)

_SYNCING_THREADS = 8


class LogManager:
    """See the module's docstring. Of directories with equally few partitions, the first in log.dirs is used."""

    def __init__(
        self,
        directories: Iterable[str],
        clock: Clock,
        defaults: LogConfig | None = None,
        ports: LogManagerPorts = NO_PORTS,
        *,
        files: Files | None = None,
        max_open_files: int = MOST_OPEN,
    ) -> None:
        self.clock = clock
        self.defaults = defaults or LogConfig()
        self.files = files or Files()
        self.open_files = OpenFiles(max_open_files)
        self.files.release_descriptor = self.open_files.release_descriptor
        self._ports = ports
        paths = list(dict.fromkeys(path.rstrip("/") or "/" for path in directories))
        if not paths:
            raise storage.StorageError("log.dirs names no directory")
        self._directories = [LogDirectory(path, self.files, self._failed) for path in paths]
        self._logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Copies of logs that move to another directory; see `moves`."""
        self.preferred: dict[TopicPartition, LogDirectory] = {}
        """Where to create the logs of partitions that come to this node."""
        self.retiring: set[str] = set()
        """Paths of logs that were moved away; their directories are about to be renamed."""
        self.deletions = Deletions(self.files, clock, ports.in_background, self.defaults.file_delete_delay_ms)
        self.planned = PlannedLogs()
        self._acquired = False
        self.has_descriptor: Callable[[], bool] = lambda: True
        """Whether the process may open one more file, for a new log."""

    # Starting

    def acquire(self) -> None:
        """Lock the directories and read how the last run ended; `load` does so if it was not done before."""
        if self._acquired:
            return
        self._acquired = True
        for directory in self._directories:
            try:
                directory.prepare()
            except OSError as error:
                storage.refuse_shortage(error)
                directory.fail(error)

    def load(
        self,
        config_for: Callable[[str], LogConfig] | None = None,
        is_stray: Callable[[TopicPartition, Uuid], bool] | None = None,
    ) -> None:
        """Lock the directories and open every partition in them, with recovery after an unclean shutdown.

        `config_for(topic)` returns the topic's configuration. A partition for which `is_stray(partition, topic id)` is
        true is renamed to `...-stray` and not opened. A failing disk takes its directory offline. Raises StorageError
        if a directory is in use, a partition is in two directories, or no directory is online.
        """
        self.acquire()
        started_ms = self.clock.monotonic_ms()
        logger.info("Loading logs from log dirs %s", ", ".join(each.path for each in self._directories if each.online))
        for directory in self._directories:
            if directory.online:
                try:
                    self._load_directory(directory, config_for, is_stray)
                except OSError as error:
                    storage.refuse_shortage(error)
                    directory.fail(error)
        self._settle_moves()
        logger.info("Loaded %d logs in %dms", len(self._logs), self.clock.monotonic_ms() - started_ms)
        self._flush_recovered()
        if not any(directory.online for directory in self._directories):
            raise storage.StorageError("None of the log directories can be used; see the lines above")

    def _flush_recovered(self) -> None:
        """Flush logs with a flush policy before they are served: a killed process may have left records unsynced."""
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
            logs = self.futures if path.endswith(FUTURE_SUFFIX) else self._logs
            if tp in logs and not replaces(logs[tp], directory, path, self.deletions):
                continue
            config = config_for(tp.topic) if config_for else self.defaults
            opening = openings.get(tp, Opening(directory.was_clean))
            context = LogContext(directory, tp, path=path, clock=self.clock, open_files=self.open_files)
            log = open_log(context, config, opening=opening)
            logs[tp] = log
            logger.info(
                "Completed load of %s with %d segments, local-log-start-offset %d and log-end-offset %d in %dms"
                " (%d/%d completed in %s)",
                log, len(log.segments), log.log_start_offset, log.log_end_offset,
                self.clock.monotonic_ms() - started_ms, count, len(found), directory.path,
            )  # fmt: skip

    def _partition_of(self, directory: LogDirectory, name: str, path: str) -> TopicPartition | None:
        if not self.files.is_directory(path):
            return None
        if (suffix := suffix_of(name)) is not None:
            if suffix == DELETE_SUFFIX:
                self.deletions.add(directory, path)
            return partition_of_future(name) if suffix == FUTURE_SUFFIX else None
        topic_partition = parse_name(name)
        if topic_partition is None:
            logger.warning("Skipping %s: it is not a partition directory", path)
            return None
        return None if topic_partition.topic == METADATA_TOPIC else topic_partition

    def _settle_moves(self) -> None:
        """Continue with the logs and copies that moves left."""
        if len(self._directories) > 1:
            remove_marks(self._logs.values(), self._directories, self.deletions)
        for topic_partition, future in self.futures.items():
            log = self._logs.get(topic_partition)
            offset = divergence(log, future) if log is not None else None
            if offset is not None:
                future.truncate_to(offset)
                self.checkpoint_recovery_points([future.log_directory])

    # The logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, None if it does not exist. Its directory may be offline."""
        return self._logs.get(topic_partition)

    @property
    def count(self) -> int:
        """Number of logs. Each has an open file for its active segment."""
        return len(self._logs)

    @property
    def open_file_count(self) -> int:
        """Approximate number of open files of all logs."""
        return len(self._logs) + len(self.futures) + self.open_files.count

    def all(self) -> list[Log]:
        """All logs, without the copies in `futures`."""
        return list(self._logs.values())

    def _all_files(self) -> list[Log]:
        return [*self._logs.values(), *self.futures.values()]

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig | None = None,
        overrides: Mapping[str, str] | None = None,
        *,
        plan: bool = False,
    ) -> Log:
        """The partition's log; an empty one is created if it does not exist. `overrides` are logged.

        With `plan`, a new log gets its files by its first append or later by `planned.create_next`.

        Raises KafkaError: INCONSISTENT_TOPIC_ID if the log belongs to an older topic of the same name (delete it
        first), KAFKA_STORAGE_ERROR if no directory is online or the disk fails. A ShortageError can be retried.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if topic_id not in {ZERO_UUID, log.topic_id} and log.topic_id != ZERO_UUID:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} belongs to another topic of the same name"
                )
            return log
        if topic_partition in self.futures:
            return self._promoted(self.futures[topic_partition])
        preferred = self.preferred.pop(topic_partition, None)
        directory = preferred if preferred is not None and preferred.online else self._emptiest_directory()
        log = self.create_in(directory, topic_partition, topic_id, config or self.defaults, plan=plan)
        self._logs[topic_partition] = log
        properties = ", ".join(f"{name}={value}" for name, value in sorted((overrides or {}).items()))
        logger.info(
            "Created log for partition %s in %s with properties {%s}", topic_partition, log.directory, properties
        )
        return log

    def create_in(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        name: str = "",
        *,
        plan: bool = False,
    ) -> Log:
        """Create a log that `get` does not find yet, in the folder `name`; raises as `create`."""
        if not self.has_descriptor():
            raise ShortageError(f"Cannot create {topic_partition}: raise the limit of open files (ulimit -n)")
        self._rewrite_checkpoints_with(directory, topic_partition)
        problem = f"Cannot create {topic_partition} in {directory.path}"
        if not directory.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        if any(topic_partition in directory.named.get(each, ()) for each in _TRUSTED):
            raise ShortageError(f"{problem}: a checkpoint that names it could not be written")
        path = f"{directory.path}/{name or topic_partition}"
        if path in self.retiring:
            raise ShortageError(f"{problem}: its previous log there is about to be renamed")
        context = LogContext(directory, topic_partition, path=path, clock=self.clock, open_files=self.open_files)
        try:
            if self.files.exists(path):
                return open_log(context, config, topic_id=topic_id)
            log = create_log(context, config, topic_id)
            if plan:
                self.planned.add(log)
            else:
                log.segments.active.file.create_planned()
        except OSError as error:
            directory.fail(error)
            if is_shortage(error):
                raise ShortageError(f"{problem}: {error}") from error
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{problem}: {error}") from error
        return log

    def _emptiest_directory(self) -> LogDirectory:
        directories = [directory for directory in self._directories if directory.online]
        if not directories:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No log directory is online")
        if len(directories) == 1:
            return directories[0]
        directories = [each for each in directories if not each.is_cordoned] or directories[:1]
        counts = {id(directory): 0 for directory in directories}
        for log in self._logs.values():
            if id(log.log_directory) in counts:
                counts[id(log.log_directory)] += 1
        return min(directories, key=lambda directory: counts[id(directory)])

    def _promoted(self, future: Log) -> Log:
        """The copy of a log that does not exist: a power cut took it before its first flush."""
        if not all(directory.online for directory in self._directories):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {future.topic_partition} is in a directory that is offline"
            )
        logger.warning("Using %s, because the log that was copied does not exist", future)
        try:
            rename_log(future, f"{future.log_directory.path}/{future.topic_partition}")
        except OSError as error:
            future.context.fail(error, "rename")
        self.adopt_future(future)
        return future

    def adopt_future(self, future: Log) -> None:
        """Use the copy of a log instead of the log; see `moves`."""
        self._logs[future.topic_partition] = self.futures.pop(future.topic_partition)

    def delete(self, topic_partitions: Iterable[TopicPartition]) -> int:
        """Delete partitions; directories are renamed now and deleted after file.delete.delay.ms.

        Returns how many existed. The new names are synced in the background: if a power cut brings an old name back,
        the next start finds that its topic does not exist and marks the directory as stray.
        """
        directories: dict[int, LogDirectory] = {}
        count = 0
        for topic_partition in topic_partitions:
            self.preferred.pop(topic_partition, None)
            log, future = self._logs.pop(topic_partition, None), self.futures.pop(topic_partition, None)
            count += log is not None
            for each in filter(None, (log, future)):
                has_files, directory = each.segments.has_files, each.log_directory
                each.abandon()
                delay_ms = each.config.file_delete_delay_ms
                if not (has_files and directory.online):
                    continue
                if self.deletions.set_aside(topic_partition, directory, each.directory, delay_ms):
                    directories[id(directory)] = directory
        if directories:
            self._ports.in_background(lambda: self.deletions.sync_names(directories.values()))
        return count

    # Directories

    def directories(self) -> list[DirectoryInfo]:
        """All of log.dirs, including offline ones."""
        return [self._info(directory) for directory in self._directories]

    def log_directories(self) -> list[LogDirectory]:
        """The `LogDirectory` of each of log.dirs, including offline ones."""
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
        if self._ports.directory_failed is not None:
            self._ports.directory_failed(DirectoryInfo(directory.path, directory.directory_id, False, -1, -1), error)

    # Maintenance

    def cleanup(self, now_ms: int) -> int:
        """Apply retention to every log, then `remove_deleted`; the number of segments deleted."""
        count = 0
        for log in self._all_files():
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
        for log in self._all_files():
            log.producers.expire(now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Delete, in the background, the files and directories whose file.delete.delay.ms has passed."""
        doomed = [
            (log.log_directory, paths)
            for log in self._all_files()
            if log.log_directory.online and (paths := log.segments.take_due_deletions(now_ms))
        ]
        self.deletions.remove_due(now_ms, doomed)

    def checkpoint(self) -> None:
        """Write recovery points and log starts of every directory. May run in another thread."""
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()

    def checkpoint_recovery_points(self, directories: Iterable[LogDirectory] | None = None) -> None:
        """Write the recovery points, and checkpoints that are overdue. May run in another thread."""
        directories = self._directories if directories is None else list(directories)
        self._checkpoint(RECOVERY_POINTS, directories)
        for directory in directories:
            for name in tuple(directory.overdue):
                self._checkpoint(name, [directory])

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets that differ from the first base offset. May run in another thread."""
        self._checkpoint(LOG_STARTS, self._directories)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of every directory. May run in another thread."""
        self._checkpoint(HIGH_WATERMARKS, self._directories)

    def checkpoint_cleaned(self, log: Log) -> None:
        """Write up to which offset each log in the directory of `log` was compacted."""
        self._checkpoint(CLEANER_OFFSETS, [log.log_directory])

    def _checkpoint(self, name: str, directories: Iterable[LogDirectory]) -> None:
        for directory in directories:
            directory.write(name, partial(self._offsets_for, name, directory))

    def _offsets_for(self, name: str, directory: LogDirectory) -> dict[TopicPartition, int]:
        offset_of = _CHECKPOINTS[name]
        offsets = ((log.topic_partition, offset_of(log)) for log in self._all_files() if log.log_directory is directory)
        return {topic_partition: offset for topic_partition, offset in offsets if offset is not None}

    def _rewrite_checkpoints_with(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Remove a deleted partition from the checkpoints: its offsets would hide records of a new namesake."""
        for name in _TRUSTED:
            if topic_partition in directory.named.get(name, ()):
                self._checkpoint(name, [directory])

    # The end

    def close(self, broker_epoch: int = -1) -> None:
        """Close every log and write the checkpoints; directories without an error get the clean-shutdown file."""
        dirty: set[int] = set()

        def tried(log: Log, step: Callable[[], object]) -> bool:
            try:
                return bool(step())
            except KafkaError as error:
                logger.warning("Error while closing the log of %s: %s", log.topic_partition, error)
                dirty.add(id(log.log_directory))
                return False

        logger.info("Shutting down.")
        logs = self._all_files()
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
        """Flush several logs at a time: file systems combine concurrent fsyncs into one journal write."""
        if len(logs) <= _SYNCING_THREADS:
            for log in logs:
                flush(log)
            return
        with ThreadPoolExecutor(_SYNCING_THREADS, thread_name_prefix="ottla-sync") as threads:
            list(threads.map(flush, logs))

    def abandon(self) -> None:
        """Close files and locks without writing, as a crash does."""
        for log in self._all_files():
            log.abandon()
        for directory in self._directories:
            directory.lock.release()


def _log_start_to_checkpoint(log: Log) -> int | None:
    start = log.log_start_offset
    return start if start > log.segments[0].base_offset else None


# The entry of a log in each checkpoint; None for no entry.
_CHECKPOINTS: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.flushed_offset,
    LOG_STARTS: _log_start_to_checkpoint,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    CLEANER_OFFSETS: lambda log: log.segments.cleaned_to or None,
}
# Checkpoints that the next start trusts.
_TRUSTED = (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)
