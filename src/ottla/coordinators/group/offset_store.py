"""Committed offsets of all groups of a shard, and those of open transactions that may yet be.

Changes only by `put`, `remove`, `put_pending` and `end_transaction`, which replay calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from ottla.common.ids import ZERO_UUID, Uuid


class Committed(NamedTuple):
    """Where a group goes on reading a partition. Times in wall-clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    """Only commits of old clients that asked for a retention time have one."""
    topic_id: Uuid = ZERO_UUID
    """Which topic of that name it was; zero if that was not recorded."""
    record_offset: int = -1
    """Where it stands in the shard's log: of two commits the later in the log wins, also after a transaction."""


GroupOffsets: TypeAlias = dict[str, dict[int, Committed]]
"""Topic -> partition -> offset."""

_NO_OFFSETS: GroupOffsets = {}


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        # Invariant: no empty dictionary at any level.
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[tuple[str, str, int], Committed]] = {}

    def of_group(self, group_id: str) -> GroupOffsets:
        """All offsets of a group; not to be changed."""
        return self._committed.get(group_id, _NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """One committed offset, if there is one."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def groups(self) -> Iterator[str]:
        """The groups that have committed something."""
        return iter(self._committed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction wants to commit here."""
        key = (group_id, topic, partition)
        return any(key in offsets for offsets in self._pending.values())

    def pending_of(self, group_id: str) -> set[tuple[str, int]]:
        """The (topic, partition) pairs of a group in open transactions."""
        return {key[1:] for offsets in self._pending.values() for key in offsets if key[0] == group_id}

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Replay a commit."""
        self._committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Replay a commit within a transaction."""
        self._pending.setdefault(producer_id, {})[group_id, topic, partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Replay a tombstone: it ends what is pending too."""
        by_topic = self._committed.get(group_id)
        by_partition = by_topic.get(topic) if by_topic is not None else None
        if by_topic is not None and by_partition is not None and by_partition.pop(partition, None) is not None:
            if not by_partition:
                del by_topic[topic]
            if not by_topic:
                del self._committed[group_id]
        for offsets in self._pending.values():
            offsets.pop((group_id, topic, partition), None)

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[str]:
        """Replay a transaction's marker; the groups whose offsets it committed."""
        offsets = self._pending.pop(producer_id, {})
        if not commit:
            return []
        for (group_id, topic, partition), committed in offsets.items():
            current = self.get(group_id, topic, partition)
            if current is None or current.record_offset < committed.record_offset:
                self.put(group_id, topic, partition, committed)
        return [group_id for group_id, _, _ in offsets]

    def snapshot(self) -> dict[tuple[str, str, int], Committed]:
        """Everything committed, flat: to compare two stores."""
        return {
            (group_id, topic, partition): committed
            for group_id, by_topic in self._committed.items()
            for topic, by_partition in by_topic.items()
            for partition, committed in by_partition.items()
        }

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._committed.values() for partitions in topics.values())
