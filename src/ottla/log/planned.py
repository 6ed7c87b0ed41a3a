"""The logs that have no files yet, in the order of their creation.

A broker creates thousands of logs in a second, and their files cost a millisecond each, most of it in the kernel. The
first append creates the files of its log; the owner creates the files of other logs when it has time, since an operator
expects a directory for each partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError

if TYPE_CHECKING:
    from ottla.log.log import Log

logger = logging.getLogger(__name__)


class PlannedLogs:
    """A queue of logs without files."""

    def __init__(self) -> None:
        self._logs: deque[Log] = deque()
        self.on_added: Callable[[], None] | None = None
        """Called when a log was added."""

    def __len__(self) -> int:
        return len(self._logs)

    def add(self, log: Log) -> None:
        """Note that `log` has no files."""
        self._logs.append(log)
        if self.on_added is not None:
            self.on_added()

    def create_next(self) -> bool:
        """Create the files of the next log that lacks them; whether another one may lack them."""
        while self._logs:
            log = self._logs.popleft()
            if log.segments.has_files or not log.log_directory.online:
                continue
            try:
                create_files(log)
            except KafkaError as error:
                logger.warning("The files of %s are created by its first append: %s", log.topic_partition, error)
            break
        return bool(self._logs)


def create_files(log: Log) -> None:
    """Create the files of a log that has none. Raises KafkaError."""
    try:
        log.segments.active.file.create_planned()
    except OSError as error:
        log.context.fail(error, "create the files of")
