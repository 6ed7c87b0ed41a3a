"""Applies the records of share groups, whether they were just appended or are loaded."""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern.epochs import LEAVE_EPOCH
from ottla.coordinators.group.modern.records import partitions_of
from ottla.coordinators.group.modern.replay import delete_group, group_of_record, remove_member, replay_target_epoch
from ottla.coordinators.group.share.group import ShareGroup, ShareMember
from ottla.coordinators.group.share.states import NO_PARTITIONS, ShareStates
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol import group_records as g
from ottla.protocol.message import Message

MEMBER_TIMERS = (Kind.SESSION,)


def replay(core: Core, key: Message, value: Message | None) -> None:
    """Apply one record of the types 10 to 15."""
    group = group_of_record(core, core.share_groups, ShareGroup, key, value)
    if group is None:
        return
    match key, value:
        case g.ShareGroupMetadataKey(), g.ShareGroupMetadataValue():
            group.state.epoch, group.state.metadata_hash = value.epoch, value.metadata_hash
        case g.ShareGroupMetadataKey(), None:
            delete_group(core, core.share_groups, group, MEMBER_TIMERS)
        case g.ShareGroupTargetAssignmentMetadataKey(), (g.ShareGroupTargetAssignmentMetadataValue() | None) as row:
            replay_target_epoch(group, row)
        case g.ShareGroupStatePartitionMetadataKey(), g.ShareGroupStatePartitionMetadataValue():
            group.shares = _states(value)
        case g.ShareGroupStatePartitionMetadataKey(), None:
            group.shares = ShareStates()
        case _:
            _replay_member(core, group, key, value)


def _replay_member(core: Core, group: ShareGroup, key: Message, value: Message | None) -> None:
    match key, value:
        case g.ShareGroupMemberMetadataKey(), g.ShareGroupMemberMetadataValue():
            member = _member(group, key.member_id)
            described = replace(member, rack_id=value.rack_id, client_id=value.client_id, client_host=value.client_host)
            group.put(replace(described, topic_names=frozenset(value.subscribed_topic_names)))
        case g.ShareGroupMemberMetadataKey(), None:
            remove_member(core, group, key.member_id, MEMBER_TIMERS)
        case g.ShareGroupTargetAssignmentMemberKey(), g.ShareGroupTargetAssignmentMemberValue():
            group.target.by_member[key.member_id] = partitions_of(value.topic_partitions)
        case g.ShareGroupTargetAssignmentMemberKey(), None:
            group.target.by_member.pop(key.member_id, None)
        case g.ShareGroupCurrentMemberAssignmentKey(), g.ShareGroupCurrentMemberAssignmentValue():
            member = replace(_member(group, key.member_id), epoch=value.member_epoch)
            assigned = partitions_of(value.assigned_partitions)
            group.put(replace(member, previous_epoch=value.previous_member_epoch, assigned=assigned))
        case g.ShareGroupCurrentMemberAssignmentKey(), None if key.member_id in group.members:
            left = replace(group.members[key.member_id], epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
            group.put(replace(left, assigned=NO_PARTITIONS))


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id) or ShareMember(member_id)


def _states(value: g.ShareGroupStatePartitionMetadataValue) -> ShareStates:
    named = (*value.initializing_topics, *value.initialized_topics)
    names = {row.topic_id: row.topic_name for row in named}
    return ShareStates(
        partitions_of(value.initializing_topics),
        partitions_of(value.initialized_topics),
        frozenset(row.topic_id for row in value.deleting_topics),
        names | {row.topic_id: row.topic_name for row in value.deleting_topics},
    )
