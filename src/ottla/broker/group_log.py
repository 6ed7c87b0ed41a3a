"""The log lines of the group coordinator, with Kafka's prefix."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.common.ids import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.partition import Partition
    from ottla.coordinators.events import LogLine

logger = logging.getLogger("ottla.coordinators.group")


class GroupLog:
    """Logs the events of one node's group coordinator."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id

    def line(self, index: int, line: LogLine) -> None:
        """Log an event of a group in partition `index`."""
        level = logging.ERROR if line.is_error else logging.INFO
        if logger.isEnabledFor(level):
            text = line.message % line.arguments
            prefix = f"[GroupCoordinator id={self._node_id} topic={OFFSETS_TOPIC} partition={index}]"
            logger.log(level, "%s %s", prefix, text)

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
        logger.info("[GroupCoordinator id=%d] %s", self._node_id, text)
