"""The committed offsets of all groups of a shard, and the pending offsets of open transactions.

Only replay changes them, with `put`, `remove`, `put_pending` and `end_transaction`.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from ottla.common.ids import ZERO_UUID, Uuid


class Committed(NamedTuple):
    """The offset at which a group continues to read a partition. Times are in wall-clock milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    """Set only by commits of old clients that requested a retention time."""
    topic_id: Uuid = ZERO_UUID
    """The id of the topic, which tells it from a recreated topic; zero if it was not recorded."""
    record_offset: int = -1
    """The offset of the record in the shard's log. The commit with the higher offset wins, also after a transaction."""


GroupOffsets: TypeAlias = dict[str, dict[int, Committed]]
"""Topic -> partition -> offset."""

_NO_OFFSETS: GroupOffsets = {}


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("_committed", "_in_transactions", "_pending")

    def __init__(self) -> None:
        # Invariant: no empty dictionary at any level.
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[tuple[str, str, int], Committed]] = {}
        # How many open transactions have a pending offset: group -> (topic, partition) -> number. Derived from
        # `_pending`, so that no question about a group has to look at all transactions.
        self._in_transactions: dict[str, dict[tuple[str, int], int]] = {}

    def of_group(self, group_id: str) -> GroupOffsets:
        """All offsets of a group; read only."""
        return self._committed.get(group_id, _NO_OFFSETS)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition, or None."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def groups(self) -> Iterator[str]:
        """The groups that have committed offsets."""
        return iter(self._committed)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for the partition."""
        return (topic, partition) in self._in_transactions.get(group_id, ())

    def pending_of(self, group_id: str) -> AbstractSet[tuple[str, int]]:
        """The (topic, partition) pairs of a group in open transactions."""
        return self._in_transactions.get(group_id, {}).keys()

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Replay a commit."""
        self._committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Replay a commit within a transaction."""
        offsets = self._pending.setdefault(producer_id, {})
        if (group_id, topic, partition) not in offsets:
            counts = self._in_transactions.setdefault(group_id, {})
            counts[topic, partition] = counts.get((topic, partition), 0) + 1
        offsets[group_id, topic, partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Replay a tombstone, which also deletes pending offsets."""
        by_topic = self._committed.get(group_id)
        by_partition = by_topic.get(topic) if by_topic is not None else None
        if by_topic is not None and by_partition is not None and by_partition.pop(partition, None) is not None:
            if not by_partition:
                del by_topic[topic]
            if not by_topic:
                del self._committed[group_id]
        if not self.is_pending(group_id, topic, partition):
            return
        for producer_id, offsets in list(self._pending.items()):
            if offsets.pop((group_id, topic, partition), None) is not None:
                self._uncount(group_id, topic, partition)
                if not offsets:
                    del self._pending[producer_id]

    def _uncount(self, group_id: str, topic: str, partition: int) -> None:
        counts = self._in_transactions[group_id]
        counts[topic, partition] -= 1
        if not counts[topic, partition]:
            del counts[topic, partition]
        if not counts:
            del self._in_transactions[group_id]

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[str]:
        """Replay a transaction marker; returns the groups whose offsets it committed."""
        offsets = self._pending.pop(producer_id, {})
        for key in offsets:
            self._uncount(*key)
        if not commit:
            return []
        for (group_id, topic, partition), committed in offsets.items():
            current = self.get(group_id, topic, partition)
            if current is None or current.record_offset < committed.record_offset:
                self.put(group_id, topic, partition, committed)
        return [group_id for group_id, _, _ in offsets]

    def snapshot(self) -> dict[tuple[str, str, int], Committed]:
        """All committed offsets by (group, topic, partition), for comparing two stores."""
        return {
            (group_id, topic, partition): committed
            for group_id, by_topic in self._committed.items()
            for topic, by_partition in by_topic.items()
            for partition, committed in by_partition.items()
        }

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._committed.values() for partitions in topics.values())
