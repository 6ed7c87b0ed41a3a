"""`LogMoves`: copies of logs that move to another log directory, and how a copy takes the place of its log. KIP-113.

The owner copies the records (`partitions/replication/directory_moves.py`) between `begin` and `complete`:

    future = moves.begin(log, directory)    # an empty copy; after a restart it is in `manager.futures`
    ...                                     # `align` and `copy_some` until it returns 0
    moves.seal(log, future)                 # in a thread: everything is on disk, and the copy is marked
    ...                                     # again: records that came meanwhile
    moves.replace(log, future)              # from now on, the partition uses the copy
    moves.sync_new_name(future)             # in a thread
    moves.retire(log)                       # the original is deleted
    moves.finish(log, future)               # in a thread

The process or the power may end after each step. Until the new name is on disk, the next start finds the original and
an unfinished copy, which is continued. From then on until the original is renamed, it finds both, and `relocation` says
which one counts. The copy has all synced records of the original on disk before it takes its place: otherwise a power
cut could take back records that were promised to be durable.
"""

from __future__ import annotations

import logging

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.log.directory import LogDirectory
from ottla.log.follower import append_as_follower, restart_at
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.planned import create_files
from ottla.log.relocation import divergence, future_name, lacks_last_batch, remove_mark, rename_log, write_mark
from ottla.log.salvage import copy_all

logger = logging.getLogger(__name__)

_LAST_EPOCH = 2**31 - 1


class LogMoves:
    """See the module's docstring. One thread calls everything except the steps that say otherwise."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        # For each copy: how often its log had been truncated when both were compared.
        self._compared: dict[TopicPartition, tuple[Log, int]] = {}

    def begin(self, log: Log, directory: LogDirectory) -> Log:
        """Create an empty copy. Raises KafkaError: KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION; ShortageError."""
        manager, topic_partition = self._manager, log.topic_partition
        name = future_name(topic_partition)
        if not all(each.online for each in manager.log_directories()):
            # An offline directory may hold another copy.
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Cannot move {topic_partition} while a log directory is offline"
            )
        if not log.segments.has_files:
            create_files(log)
        future = manager.create_in(directory, topic_partition, log.topic_id, log.config, name)
        # The copy has the same records and needs no compaction before the log would.
        future.segments.cleaned_to = log.segments.cleaned_to
        manager.futures[topic_partition] = future
        logger.info("Created log for future replica of %s in %s", topic_partition, future.directory)
        return future

    def discard(self, future: Log) -> None:
        """Give up a move, and delete its copy."""
        self._manager.futures.pop(future.topic_partition, None)
        self._compared.pop(future.topic_partition, None)
        future.abandon()
        directory = future.log_directory
        if directory.online:
            self._manager.deletions.set_aside(future.topic_partition, directory, future.directory)

    def align(self, log: Log, future: Log) -> bool:
        """Drop records of the copy that the log does not have; whether that requires a `flush` before `copy_some`."""
        if future.topic_id != log.topic_id:  # a power cut took its file
            try:
                future.adopt(log.topic_id)
            except OSError as error:
                future.context.fail(error, "write the topic id of")
        offset = divergence(log, future)
        if offset is not None and offset < future.log_end_offset:
            future.truncate_to(offset, sync=False)
        elif future.log_end_offset < log.log_start_offset or (
            self._was_truncated(log, future) and lacks_last_batch(log, future)
        ):
            restart_at(future, log.log_start_offset)
        else:
            return False
        self._manager.checkpoint_recovery_points([future.log_directory])
        return True

    def _was_truncated(self, log: Log, future: Log) -> bool:
        """Whether the log may have been truncated since the last call, which a restart hides."""
        now = future, log.segments.unsynced.truncations
        known = self._compared.get(log.topic_partition)
        self._compared[log.topic_partition] = now
        return known != now

    @staticmethod
    def copy_some(log: Log, future: Log, max_bytes: int) -> int:
        """Copy the next records, at least one batch; returns the bytes, 0 if the copy has everything.

        Call `align` before. Raises KafkaError, of either log.
        """
        size = 0
        if future.log_end_offset < log.log_end_offset:
            data = log.read(future.log_end_offset, max_bytes, log.log_end_offset)
            size = append_as_follower(future, data, _LAST_EPOCH, log.context.clock.wall_ms())
            if not data:  # the log ends with a gap, and so must the copy: no record gets an offset twice
                future.roll(offset=log.log_end_offset)
            future.epochs.take_over(log.epochs, future.log_end_offset)
        future.high_watermark = log.high_watermark
        future.advance_start(min(log.log_start_offset, future.high_watermark), "leader offset increment")
        return size

    @staticmethod
    def seal(log: Log, future: Log) -> None:
        """Sync the copy and mark it as complete. May run in another thread. Raises KafkaError, OSError."""
        future.flush()
        try:
            copy_all(log.files, log.directory, future.files, future.directory)
            write_mark(future.files, future.directory, log.log_directory.directory_id)
        except OSError as error:
            future.context.fail(error, "move")

    def replace(self, log: Log, future: Log) -> None:
        """Let the copy take the place of its log. Raises KafkaError, and nothing has changed then."""
        if future.flushed_offset < log.flushed_offset:
            future.flush()
        path = f"{future.log_directory.path}/{future.topic_partition}"
        try:
            rename_log(future, path)
        except OSError as error:
            future.context.fail(error, "rename")
        self._compared.pop(log.topic_partition, None)
        self._manager.adopt_future(future)
        self._manager.retiring.add(log.directory)
        future.reconfigure(log.config)
        future.advance_start(log.log_start_offset, "the move to another log directory")
        future.high_watermark = log.high_watermark
        future.producers.take_over(log.producers)
        log.abandon()
        logger.info("The current replica is successfully replaced with the future replica for %s", log.topic_partition)

    @staticmethod
    def sync_new_name(log: Log) -> None:
        """Sync the name of the log that was moved. May run in another thread. Raises KafkaError."""
        try:
            log.files.fsync_directory(log.log_directory.path)
        except OSError as error:
            log.context.fail(error, "sync the name of")

    def retire(self, original: Log) -> None:
        """Rename the original for deletion; call it after `sync_new_name`."""
        self._manager.retiring.discard(original.directory)
        if original.log_directory.online:
            delay_ms = original.config.file_delete_delay_ms
            self._manager.deletions.set_aside(
                original.topic_partition, original.log_directory, original.directory, delay_ms
            )

    def keep_original(self, original: Log) -> None:
        """Leave the original on disk: the name of its successor could not be synced."""
        self._manager.retiring.discard(original.directory)

    def finish(self, original: Log, log: Log) -> None:
        """Sync the removal of the original, and remove the mark. May run in another thread."""
        self._manager.deletions.sync_names([original.log_directory])
        if not original.log_directory.online or log.closed:
            return
        try:
            remove_mark(log.files, log.directory)
        except OSError as error:
            if not log.closed:
                log.log_directory.fail(error)
