"""The records that groups of all modern types have: the same fields under other types, and the order of tombstones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from ottla.common.ids import Uuid
from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.assignors import Partitions
from ottla.protocol import group_records as g
from ottla.protocol.group_records import encode_key, encode_value
from ottla.protocol.message import Message
from ottla.protocol.streams_group_records import CurrentTaskIds

VERSION = 0


class _GroupKey(Protocol):
    def __call__(self, *, group_id: str) -> Message: ...


class _MemberKey(Protocol):
    def __call__(self, *, group_id: str, member_id: str) -> Message: ...


class _TargetEpoch(Protocol):
    def __call__(self, *, assignment_epoch: int, assignment_timestamp: int) -> Message: ...


class RecordTypes(NamedTuple):
    """The classes of one type of group."""

    epoch: _GroupKey
    member: _MemberKey
    target_epoch: _GroupKey
    target_epoch_value: _TargetEpoch
    target: _MemberKey
    current: _MemberKey

    def epoch_record(self, group_id: str, value: Message) -> RecordBytes:
        """The group's epoch."""
        return encode_key(self.epoch(group_id=group_id)), encode_value(value, VERSION)

    def member_record(self, group_id: str, member_id: str, value: Message) -> RecordBytes:
        """The record of a member's own data."""
        return encode_key(self.member(group_id=group_id, member_id=member_id)), encode_value(value, VERSION)

    def target_record(self, group_id: str, member_id: str, value: Message) -> RecordBytes:
        """A member's part of the target assignment."""
        return encode_key(self.target(group_id=group_id, member_id=member_id)), encode_value(value, VERSION)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp_ms: int) -> RecordBytes:
        """The epoch of the target assignment."""
        value = self.target_epoch_value(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return encode_key(self.target_epoch(group_id=group_id)), encode_value(value, VERSION)

    def current_record(self, group_id: str, member_id: str, value: Message) -> RecordBytes:
        """The epoch of a member, and what it owns."""
        return encode_key(self.current(group_id=group_id, member_id=member_id)), encode_value(value, VERSION)

    def member_tombstones(self, group_id: str, member_id: str) -> list[RecordBytes]:
        """The records that delete a member. Kafka fails on another order."""
        keys = (self.current, self.target, self.member)
        return [(encode_key(key(group_id=group_id, member_id=member_id)), None) for key in keys]

    def tombstones(self, group_id: str, member_ids: Iterable[str], *further: bytes) -> list[RecordBytes]:
        """The records that delete a group, `further` keys before its own. Kafka fails on another order."""
        ids = tuple(member_ids)
        keys = [encode_key(self.current(group_id=group_id, member_id=member_id)) for member_id in ids]
        keys += [encode_key(self.target(group_id=group_id, member_id=member_id)) for member_id in ids]
        keys.append(encode_key(self.target_epoch(group_id=group_id)))
        keys += [encode_key(self.member(group_id=group_id, member_id=member_id)) for member_id in ids]
        return [(key, None) for key in (*keys, *further, encode_key(self.epoch(group_id=group_id)))]


def partition_rows(partitions: Partitions) -> list[g.TopicPartition]:
    """Partitions as records have them, in the order of their topics."""
    return [g.TopicPartition(topic_id=topic, partitions=sorted(partitions[topic])) for topic in sorted(partitions)]


def partitions_of(rows: Iterable[g.TopicPartition | g.TopicPartitionsInfo]) -> Partitions:
    """The partitions of a record."""
    return {row.topic_id: frozenset(row.partitions) for row in rows if row.partitions}


def names_of(partitions: Mapping[Uuid, Iterable[int]], names: Mapping[Uuid, str]) -> list[g.TopicPartitionsInfo]:
    """Partitions with the names of their topics, as records have them."""
    return [
        g.TopicPartitionsInfo(topic_id=topic, topic_name=names[topic], partitions=sorted(partitions[topic]))
        for topic in sorted(partitions)
    ]


def epochs_of(row: g.TopicPartitions | CurrentTaskIds, member_epoch: int) -> dict[int, int]:
    """The epoch at which each partition was assigned.

    Before Kafka 4.3 these were not stored: the member's epoch takes their place.
    """
    epochs = row.assignment_epochs
    if epochs is None or len(epochs) != len(row.partitions):
        return dict.fromkeys(row.partitions, member_epoch)
    return dict(zip(row.partitions, epochs, strict=True))
