"""Encodes the records of a share group; `replay` decodes them. Versions are as in Kafka 4.3."""

from __future__ import annotations

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.modern.records import VERSION, RecordTypes, names_of, partition_rows
from ottla.coordinators.group.share.group import ShareGroup, ShareMember
from ottla.coordinators.group.share.states import ShareStates
from ottla.protocol import group_records as g
from ottla.protocol.group_records import encode_key, encode_value

TYPES = RecordTypes(
    g.ShareGroupMetadataKey,
    g.ShareGroupMemberMetadataKey,
    g.ShareGroupTargetAssignmentMetadataKey,
    g.ShareGroupTargetAssignmentMetadataValue,
    g.ShareGroupTargetAssignmentMemberKey,
    g.ShareGroupCurrentMemberAssignmentKey,
)


def member_record(group_id: str, member: ShareMember) -> RecordBytes:
    """The record of a member's own data."""
    value = g.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return TYPES.member_record(group_id, member.member_id, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> RecordBytes:
    """The group's epoch."""
    return TYPES.epoch_record(group_id, g.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def target_record(group_id: str, member_id: str, target: Partitions) -> RecordBytes:
    """A member's part of the target assignment."""
    value = g.ShareGroupTargetAssignmentMemberValue(topic_partitions=partition_rows(target))
    return TYPES.target_record(group_id, member_id, value)


def current_record(group_id: str, member: ShareMember) -> RecordBytes:
    """The epoch of a member, and its partitions."""
    value = g.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=partition_rows(member.assigned),
    )
    return TYPES.current_record(group_id, member.member_id, value)


def states_record(group_id: str, states: ShareStates) -> RecordBytes:
    """The partitions that have share state."""
    names = states.names
    value = g.ShareGroupStatePartitionMetadataValue(
        initializing_topics=names_of(states.initializing, names),
        initialized_topics=names_of(states.initialized, names),
        deleting_topics=[g.TopicInfo(topic_id=topic, topic_name=names[topic]) for topic in sorted(states.deleting)],
    )
    return _states_key(group_id), encode_value(value, VERSION)


def group_tombstones(group: ShareGroup) -> list[RecordBytes]:
    """The records that delete an empty group. Kafka fails on another order."""
    return [*TYPES.tombstones(group.group_id, ()), (_states_key(group.group_id), None)]


def _states_key(group_id: str) -> bytes:
    return encode_key(g.ShareGroupStatePartitionMetadataKey(group_id=group_id))
