"""Encodes the records of a consumer group; `replay` decodes them. Versions are as in Kafka 4.3."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.consumer.group import ConsumerGroup, ResolvedExpression
from ottla.coordinators.group.consumer.member import ConsumerMember, Owned
from ottla.coordinators.group.modern.records import VERSION, RecordTypes, partition_rows
from ottla.protocol import group_records as g
from ottla.protocol.group_records import encode_key, encode_value

TYPES = RecordTypes(
    g.ConsumerGroupMetadataKey,
    g.ConsumerGroupMemberMetadataKey,
    g.ConsumerGroupTargetAssignmentMetadataKey,
    g.ConsumerGroupTargetAssignmentMetadataValue,
    g.ConsumerGroupTargetAssignmentMemberKey,
    g.ConsumerGroupCurrentMemberAssignmentKey,
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> RecordBytes:
    """The group's epoch."""
    return TYPES.epoch_record(group_id, g.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_record(group_id: str, member: ConsumerMember) -> RecordBytes:
    """The record of a member's own data."""
    classic = None
    if member.classic is not None:
        protocols = [g.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols]
        timeout_ms = member.classic.session_timeout_ms
        classic = g.ClassicMemberMetadata(session_timeout_ms=timeout_ms, supported_protocols=protocols)
    value = g.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return TYPES.member_record(group_id, member.member_id, value)


def target_record(group_id: str, member_id: str, target: Partitions) -> RecordBytes:
    """A member's part of the target assignment."""
    value = g.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partition_rows(target))
    return TYPES.target_record(group_id, member_id, value)


def current_record(group_id: str, member: ConsumerMember) -> RecordBytes:
    """The epoch of a member, and the partitions that it owns."""
    value = g.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.revoking),
    )
    return TYPES.current_record(group_id, member.member_id, value)


def _owned(owned: Owned) -> list[g.TopicPartitions]:
    rows = []
    for topic in sorted(owned):
        partitions = sorted(owned[topic])
        epochs = [owned[topic][partition] for partition in partitions]
        rows.append(g.TopicPartitions(topic_id=topic, partitions=partitions, assignment_epochs=epochs))
    return rows


def expression_record(group_id: str, regex: str, resolved: ResolvedExpression) -> RecordBytes:
    """The topics that match a regular expression."""
    value = g.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return _expression_key(group_id, regex), encode_value(value, VERSION)


def expression_tombstone(group_id: str, regex: str) -> RecordBytes:
    """The record that deletes a regular expression."""
    return _expression_key(group_id, regex), None


def partition_metadata_tombstone(group_id: str) -> RecordBytes:
    """The record that deletes what Kafka 4.0 stored of the group's topics."""
    return encode_key(g.ConsumerGroupPartitionMetadataKey(group_id=group_id)), None


def group_tombstones(group: ConsumerGroup, member_ids: Iterable[str] | None = None) -> list[RecordBytes]:
    """The records that delete the group with its members (None: its present ones). Kafka fails on another order."""
    group_id = group.group_id
    ids = group.members if member_ids is None else member_ids
    expressions = [_expression_key(group_id, regex) for regex in group.expressions]
    return TYPES.tombstones(group_id, ids, *expressions, partition_metadata_tombstone(group_id)[0])


def _expression_key(group_id: str, regex: str) -> bytes:
    return encode_key(g.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))
