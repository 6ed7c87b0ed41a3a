"""Encodes the records of `__consumer_offsets`; the shard's `replay` decodes them.

The versions are the same as Kafka 4.3 writes: groups in version 3, offsets in version 4, which has the topic id, or in
version 1 if they have an expiry time. All versions up to 4 can be read. KIP-915.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.group import Group
from ottla.coordinators.group.member import Member
from ottla.coordinators.group.offset_store import Committed
from ottla.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)

GROUP_VALUE_VERSION = 3
OFFSET_VALUE_VERSION = 4
# Only this version has a field for the expiry time.
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
LONGEST_CACHED = 256


def group_record(
    group: Group, members: Iterable[Member], leader: str | None, assignments: Mapping[str, bytes]
) -> RecordBytes:
    """The group's record with these members and assignments."""
    rows = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in members
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=leader,
        current_state_timestamp=-1 if group.lifecycle.entered_ms is None else group.lifecycle.entered_ms,
        members=rows,
    )
    return group_key(group.group_id), encode_value(value, GROUP_VALUE_VERSION)


def group_key(group_id: str) -> bytes:
    """The key of the group's record."""
    return encode_key(GroupMetadataKey(group=group_id))


def group_tombstone(group_id: str) -> RecordBytes:
    """The record that deletes the group."""
    return group_key(group_id), None


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


_cached_offset_key = lru_cache(maxsize=10_000)(_offset_key)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of one committed offset. It is cached, because groups commit the same partitions repeatedly.

    Keys of long group ids are not cached, so that a client cannot fill the memory with them.
    """
    return (_cached_offset_key if len(group_id) <= LONGEST_CACHED else _offset_key)(group_id, topic, partition)


def offset_record(group_id: str, topic: str, partition: int, committed: Committed) -> RecordBytes:
    """The record of a committed offset."""
    expires = committed.expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=-1 if committed.expire_timestamp_ms is None else committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if expires else OFFSET_VALUE_VERSION
    return offset_key(group_id, topic, partition), encode_value(value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> RecordBytes:
    """The record that deletes a committed offset."""
    return offset_key(group_id, topic, partition), None
