"""The log lines of a coordinator, with Kafka's prefix."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.coordinators.events import LogLine
    from ottla.partitions.partition import Partition


class CoordinatorLog:
    """Logs the events of one node's coordinator to `logger`; `name` is for example "GroupCoordinator"."""

    def __init__(self, logger: logging.Logger, name: str, topic: str, node_id: int) -> None:
        self._logger = logger
        self._name = name
        self._topic = topic
        self._node_id = node_id

    def line(self, index: int, line: LogLine) -> None:
        """Log an event of the shard of partition `index`."""
        level = logging.ERROR if line.is_error else logging.INFO
        if self._logger.isEnabledFor(level):
            text = line.message % line.arguments
            prefix = f"[{self._name} id={self._node_id} topic={self._topic} partition={index}]"
            self._logger.log(level, "%s %s", prefix, text)

    def scheduled(self, partition: Partition) -> None:
        """Log that a partition will be loaded."""
        self._partition("Scheduling loading of metadata from %s with epoch %d", partition)

    def loaded(self, partition: Partition, took_ms: int, queued_ms: int, records: int, size: int) -> None:
        """Log that a partition was loaded."""
        message = (
            "Finished loading of metadata from %s with epoch %d in %dms where %dms was spent in the scheduler."
            " Loaded %d records which total to %d bytes."
        )
        self._partition(message, partition, took_ms, queued_ms, records, size)

    def unloading(self, partition: Partition) -> None:
        """Log that a partition is about to be unloaded."""
        self._partition("Started unloading metadata for %s with epoch %d.", partition)

    def unloaded(self, partition: Partition) -> None:
        """Log that a partition was unloaded."""
        self._partition("Finished unloading metadata for %s with epoch %d.", partition)

    def _partition(self, message: str, partition: Partition, *more: object) -> None:
        text = message % (partition.topic_partition, partition.leader_epoch, *more)
        self._logger.info("[%s id=%d] %s", self._name, self._node_id, text)
