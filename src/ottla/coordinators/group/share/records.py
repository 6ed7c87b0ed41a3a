"""Encodes the records of a share group; `replay` decodes them. Versions are those of Kafka 4.3."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.ids import Uuid
from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.share.group import ShareGroup, ShareMember
from ottla.coordinators.group.share.states import ShareStates
from ottla.protocol import group_records as g
from ottla.protocol.group_records import encode_key, encode_value

VERSION = 0


def member_record(group_id: str, member: ShareMember) -> RecordBytes:
    """What a member said of itself."""
    value = g.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return _member_key(group_id, member.member_id), encode_value(value, VERSION)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> RecordBytes:
    """The group's epoch."""
    value = g.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return encode_key(g.ShareGroupMetadataKey(group_id=group_id)), encode_value(value, VERSION)


def target_record(group_id: str, member_id: str, target: Partitions) -> RecordBytes:
    """A member's part of the target assignment."""
    value = g.ShareGroupTargetAssignmentMemberValue(topic_partitions=_rows(target))
    return _target_key(group_id, member_id), encode_value(value, VERSION)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> RecordBytes:
    """The epoch of the target assignment."""
    value = g.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return encode_key(g.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)), encode_value(value, VERSION)


def current_record(group_id: str, member: ShareMember) -> RecordBytes:
    """The epoch of a member, and its partitions."""
    value = g.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=_rows(member.assigned),
    )
    return _current_key(group_id, member.member_id), encode_value(value, VERSION)


def states_record(group_id: str, states: ShareStates) -> RecordBytes:
    """The partitions that have share state."""
    names = states.names
    value = g.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_named(states.initializing, names),
        initialized_topics=_named(states.initialized, names),
        deleting_topics=[g.TopicInfo(topic_id=topic, topic_name=names[topic]) for topic in sorted(states.deleting)],
    )
    return _states_key(group_id), encode_value(value, VERSION)


def member_tombstones(group_id: str, member_id: str) -> list[RecordBytes]:
    """The records that delete a member. Kafka fails on another order."""
    return [(key(group_id, member_id), None) for key in (_current_key, _target_key, _member_key)]


def group_tombstones(group: ShareGroup) -> list[RecordBytes]:
    """The records that delete an empty group. Kafka fails on another order."""
    group_id = group.group_id
    return [
        (encode_key(g.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)), None),
        (encode_key(g.ShareGroupMetadataKey(group_id=group_id)), None),
        (_states_key(group_id), None),
    ]


def _rows(partitions: Partitions) -> list[g.TopicPartition]:
    return [g.TopicPartition(topic_id=topic, partitions=sorted(partitions[topic])) for topic in sorted(partitions)]


def _named(partitions: Partitions, names: Mapping[Uuid, str]) -> list[g.TopicPartitionsInfo]:
    return [
        g.TopicPartitionsInfo(topic_id=topic, topic_name=names[topic], partitions=sorted(partitions[topic]))
        for topic in sorted(partitions)
    ]


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_key(g.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def _target_key(group_id: str, member_id: str) -> bytes:
    return encode_key(g.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def _current_key(group_id: str, member_id: str) -> bytes:
    return encode_key(g.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def _states_key(group_id: str) -> bytes:
    return encode_key(g.ShareGroupStatePartitionMetadataKey(group_id=group_id))
