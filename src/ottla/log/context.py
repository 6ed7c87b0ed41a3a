"""`LogContext`: what all parts of one log share, and what an error of the disk means for it."""

from typing import NoReturn

from ottla.common.clock import Clock, SystemClock
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.shortage import ShortageError, is_shortage
from ottla.log.directory import LogDirectory
from ottla.log.open_files import OpenFiles


class LogContext:
    """The partition, its place on disk, and the services that the parts of its log use.

    `path` is the partition's directory, `<log directory>/<topic>-<partition>` unless given.
    """

    __slots__ = ("clock", "closed", "files", "log_directory", "open_files", "path", "topic_partition")

    def __init__(
        self,
        log_directory: LogDirectory,
        topic_partition: TopicPartition,
        *,
        path: str = "",
        clock: Clock | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        self.log_directory = log_directory
        self.topic_partition = topic_partition
        self.path = path or f"{log_directory.path}/{topic_partition}"
        self.files = log_directory.files
        self.clock: Clock = clock or SystemClock()
        self.open_files = open_files or OpenFiles()
        self.closed = False
        """Whether the log was closed or its partition deleted. The files at `path` may then be another topic's."""

    def check_online(self) -> None:
        """Raise KafkaError(KAFKA_STORAGE_ERROR) if the log directory is offline."""
        if not self.log_directory.online:
            self.raise_offline()

    def raise_offline(self) -> NoReturn:
        """Raise the KafkaError for a log directory that is offline."""
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.topic_partition} is in the log directory {self.log_directory.path}, which is offline",
        )

    def fail(self, error: OSError, action: str) -> NoReturn:
        """Take the log directory offline and raise KafkaError(KAFKA_STORAGE_ERROR).

        A shortage of descriptors or memory raises ShortageError instead and leaves the directory online.
        """
        # The files of a deleted partition were renamed: their errors do not mean that the disk fails.
        if not self.closed:
            self.log_directory.fail(error)
        problem = f"Cannot {action} {self.topic_partition} in {self.log_directory.path}: {error}"
        if is_shortage(error):
            raise ShortageError(problem) from error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem) from error
