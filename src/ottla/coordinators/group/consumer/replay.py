"""Applies the records of consumer groups, whether they were just appended or are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.coordinators.group.consumer.group import ConsumerGroup, ResolvedExpression
from ottla.coordinators.group.consumer.member import (
    NOTHING_OWNED,
    ClassicMember,
    ConsumerMember,
    MemberState,
    Owned,
)
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern.epochs import LEAVE_EPOCH
from ottla.coordinators.group.modern.records import epochs_of, partitions_of
from ottla.coordinators.group.modern.replay import delete_group, group_of_record, remove_member, replay_target_epoch
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol import group_records as g
from ottla.protocol.message import Message

MEMBER_TIMERS = (Kind.JOIN, Kind.SYNC, Kind.SESSION, Kind.REBALANCE)


def replay(core: Core, key: Message, value: Message | None) -> None:
    """Apply one record of the types 3 to 8 and 16."""
    group = group_of_record(core, core.consumer_groups, ConsumerGroup, key, value)
    if group is None:
        return
    match key, value:
        case g.ConsumerGroupMetadataKey(), g.ConsumerGroupMetadataValue():
            group.state.epoch, group.state.metadata_hash = value.epoch, value.metadata_hash
        case g.ConsumerGroupMetadataKey(), None:
            delete_group(core, core.consumer_groups, group, MEMBER_TIMERS)
        case g.ConsumerGroupPartitionMetadataKey(), _:
            group.has_partition_metadata = value is not None
        case g.ConsumerGroupTargetAssignmentMetadataKey(), (
            g.ConsumerGroupTargetAssignmentMetadataValue() | None
        ) as row:
            replay_target_epoch(group, row)
        case g.ConsumerGroupRegularExpressionKey(), g.ConsumerGroupRegularExpressionValue():
            resolved = ResolvedExpression(frozenset(value.topics), value.version, value.timestamp)
            group.put_expression(key.regular_expression, resolved)
        case g.ConsumerGroupRegularExpressionKey(), None:
            group.remove_expression(key.regular_expression)
        case _:
            _replay_member(core, group, key, value)


def _replay_member(core: Core, group: ConsumerGroup, key: Message, value: Message | None) -> None:
    match key, value:
        case g.ConsumerGroupMemberMetadataKey(), g.ConsumerGroupMemberMetadataValue():
            group.put(_described(_member(group, key.member_id), value))
        case g.ConsumerGroupMemberMetadataKey(), None:
            remove_member(core, group, key.member_id, MEMBER_TIMERS)
        case g.ConsumerGroupTargetAssignmentMemberKey(), g.ConsumerGroupTargetAssignmentMemberValue():
            group.target.by_member[key.member_id] = partitions_of(value.topic_partitions)
        case g.ConsumerGroupTargetAssignmentMemberKey(), None:
            group.target.by_member.pop(key.member_id, None)
        case g.ConsumerGroupCurrentMemberAssignmentKey(), g.ConsumerGroupCurrentMemberAssignmentValue():
            group.put(_placed(_member(group, key.member_id), value))
        case g.ConsumerGroupCurrentMemberAssignmentKey(), None if key.member_id in group.members:
            member = group.members[key.member_id]
            left = replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING_OWNED)
            group.put(replace(left, revoking=NOTHING_OWNED))


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id) or ConsumerMember(member_id)


def _described(member: ConsumerMember, value: g.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = None
    if value.classic_member_metadata is not None:
        rows = value.classic_member_metadata.supported_protocols
        protocols = tuple((row.name, bytes(row.metadata)) for row in rows)
        classic = ClassicMember(value.classic_member_metadata.session_timeout_ms, protocols)
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=classic,
    )


def _placed(member: ConsumerMember, value: g.ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned(rows: Iterable[g.TopicPartitions], epoch: int) -> Owned:
    return {row.topic_id: epochs_of(row, epoch) for row in rows if row.partitions}
