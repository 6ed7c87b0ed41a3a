"""Which replicas of this node must not get an empty log in the place of one that was lost with its directory.

The metadata counts a replica in sync, or as the last known leader, until the controller learns otherwise. With an
empty log it would lead, and the other replicas would truncate their logs. Therefore a replica whose log directory was
lost or replaced gets a log only while another node leads the partition: it fetches everything from there. Without such
a leader it stays offline, until the directory is back, another replica leads, or an operator requests an unclean
election, which assigns the replica to a directory that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, TopicPartition
from ottla.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from ottla.log import LogManager
    from ottla.metadata.image import MetadataImage, TopicImage

_UNKNOWN = frozenset({DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_LOST})


class LostLogs:
    """The replicas without a log whose directory is not one of this node's."""

    def __init__(self, node_id: int, logs: LogManager) -> None:
        self._node_id = node_id
        self._logs = logs
        self.directory_is_missing = False
        """Whether a log directory of the previous start is missing, or one of `log.dirs` does not work."""
        self._first: MetadataImage | None = None

    def begin(self, image: MetadataImage) -> None:
        """Remember the partitions that existed at the start, if their logs may be lost."""
        self._first = image if self.directory_is_missing else None

    def is_lost(self, topic: TopicImage, index: int) -> bool:
        """Whether the replica of this node has no log, had one, and cannot fetch all records from a leader."""
        if self._logs.get(TopicPartition(topic.name, index)) is not None:
            return False
        partition = topic.partitions[index]
        where = partition.directory_of(self._node_id)
        directories = self._logs.log_directories()
        if where in _UNKNOWN:
            first = self._first.topics_by_id.get(topic.topic_id) if self._first is not None else None
            had_log = first is not None and index in first.partitions
        else:
            had_log = all(each.directory_id != where for each in directories)
        # A directory that does not work may return with the log, and a partition cannot be in two directories.
        may_return = not all(each.online for each in directories)
        return had_log and (may_return or partition.leader in (NO_LEADER, self._node_id))
