"""The names of a log while it moves to another log directory, and the mark of its copy. KIP-113.

A log moves as a copy, `<topic>-<partition>.<unique>-future`. When the copy has everything, it is marked with the file
`moved-from`, which names the log directory of the original, and renamed to `<topic>-<partition>`. Then the original is
renamed to `...-delete`. If the process or the power ends between the two, both have the name of the partition: the next
start uses the marked one, which is complete on disk. The mark is deleted when the original no longer has that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition, Uuid, uuid_from_text, uuid_to_text
from ottla.log.deletions import Deletions
from ottla.log.directory import LogDirectory
from ottla.log.directory_names import FUTURE_SUFFIX, marked_name, parse_name
from ottla.log.files import Files
from ottla.log.storage import StorageError
from ottla.records import read_header
from ottla.replication.follower import EpochEnd, truncation_offset

if TYPE_CHECKING:
    from ottla.log.log import Log

MARK = "moved-from"


def future_name(topic_partition: TopicPartition) -> str:
    """A new name for a copy. Raises KafkaError(INVALID_TOPIC_EXCEPTION) if the topic's name leaves no room for it."""
    name = marked_name(topic_partition, FUTURE_SUFFIX)
    if partition_of_future(name) != topic_partition:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    return name


def partition_of_future(name: str) -> TopicPartition | None:
    """The partition of a copy, by the name of its directory."""
    return parse_name(name.rpartition(".")[0])


def write_mark(files: Files, path: str, source: Uuid) -> None:
    """Mark the copy at `path` as complete, durably; the original is in the log directory with the id `source`."""
    files.write_atomically(f"{path}/{MARK}", uuid_to_text(source).encode())


def read_mark(files: Files, path: str) -> Uuid | None:
    """The id of the log directory from which the log at `path` was moved; None if it has no valid mark."""
    mark = f"{path}/{MARK}"
    if not files.exists(mark):
        return None
    try:
        return uuid_from_text(files.read(mark).decode("ascii", "replace"))
    except ValueError:
        return None


def remove_mark(files: Files, path: str) -> None:
    """Delete the mark durably."""
    files.unlink(f"{path}/{MARK}")
    files.fsync_directory(path)


def rename_log(log: Log, path: str) -> None:
    """Rename the directory of an open log. No flush may be running. Raises OSError, and the log is as before."""
    log.files.rename(log.directory, path)
    old = len(log.directory)
    with log.segments.unsynced.lock:
        log.directory = log.context.path = log.producers.directory = log.epochs.directory = path
        unsynced = log.segments.unsynced
        unsynced.directory_changed = True
        unsynced.paths = [path + each[old:] for each in unsynced.paths]
        log.segments.deletions = [(due_ms, path + each[old:]) for due_ms, each in log.segments.deletions]
        for segment in log.segments:
            segment.move_to(path)


# After a start


def replaces(known: Log, directory: LogDirectory, path: str, deletions: Deletions) -> bool:
    """Whether the log at `path` takes the place of `known`, which was found before; sets the other log aside.

    Raises StorageError if no move explains why there are two, OSError as the disk does.
    """
    topic_partition, files = known.topic_partition, directory.files
    if path.endswith(FUTURE_SUFFIX):
        deletions.set_aside(topic_partition, directory, path)
        return False
    if read_mark(files, path) == known.log_directory.directory_id:
        files.fsync_directory(directory.path)
        known.abandon()
        deletions.set_aside(topic_partition, known.log_directory, known.directory)
        return True
    if read_mark(files, known.directory) == directory.directory_id:
        files.fsync_directory(known.log_directory.path)
        deletions.set_aside(topic_partition, directory, path)
        return False
    raise StorageError(f"{topic_partition} is in two log directories, {known.directory} and {path}; remove one")


def remove_marks(logs: Iterable[Log], directories: Iterable[LogDirectory], deletions: Deletions) -> None:
    """Delete the marks of moves whose originals cannot return: their directories were read."""
    online = [directory for directory in directories if directory.online]
    ids = {directory.directory_id for directory in online}
    marked = [log for log in logs if log.log_directory.online and read_mark(log.files, log.directory) in ids]
    if marked:
        deletions.sync_names(online)
    for log in marked:
        try:
            remove_mark(log.files, log.directory)
        except OSError as error:
            log.log_directory.fail(error)


def divergence(log: Log, future: Log) -> int | None:
    """The offset to which the copy has to be truncated, because the log has other records from there on, or none.

    An answer of None holds until the log is truncated. After a start it must be asked before the log is appended to:
    a power cut may have taken records of the log that the copy has, and others would take their offsets.
    """
    end, epoch, latest = future.log_end_offset, future.latest_epoch, log.latest_epoch
    if epoch < 0:
        return log.log_end_offset if end > log.log_end_offset else None
    found = EpochEnd(latest, log.log_end_offset)
    if epoch < latest:
        found = EpochEnd(*log.offset_for_leader_epoch(epoch))
    if found.epoch >= epoch and found.end_offset >= end:
        return None
    return truncation_offset(found, future)


def lacks_last_batch(log: Log, future: Log) -> bool:
    """Whether the log has another batch, or none, where the copy has its last one.

    `divergence` does not notice it if compaction removed the batches that show where the next epoch began. The log is
    not compacted while it moves, so that it has each batch of the copy.
    """
    last = future.log_end_offset - 1
    if last < max(log.log_start_offset, future.log_start_offset):
        return False
    copied, own = future.read(last, 1, last + 1), log.read(last, 1, log.log_end_offset)
    if not copied:  # the copy ends with a gap, as the log did
        return False
    if not own:
        return True
    wanted, found = read_header(copied), read_header(own)
    return (wanted.base_offset, wanted.partition_leader_epoch) != (found.base_offset, found.partition_leader_epoch)
