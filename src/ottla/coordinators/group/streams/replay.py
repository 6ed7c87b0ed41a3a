"""Applies the records of streams groups, whether they were just appended or are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern.epochs import LEAVE_EPOCH
from ottla.coordinators.group.modern.records import epochs_of
from ottla.coordinators.group.modern.replay import (
    delete_group,
    group_of_record,
    remove_member,
    replay_target_epoch,
)
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import MemberState, StreamsMember
from ottla.coordinators.group.streams.tasks import NOTHING_OWNED, OwnedActive, OwnedTasks, Tasks, task_sets
from ottla.coordinators.group.streams.topology import StreamsTopology
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol import streams_group_records as s
from ottla.protocol.message import Message

MEMBER_TIMERS = (Kind.SESSION, Kind.REBALANCE)


def replay(core: Core, key: Message, value: Message | None) -> None:
    """Apply one record of the types 17 and 19 to 23."""
    group = group_of_record(core, core.streams_groups, StreamsGroup, key, value)
    if group is None:
        return
    match key, value:
        case s.StreamsGroupMetadataKey(), s.StreamsGroupMetadataValue():
            group.state.epoch, group.state.metadata_hash = value.epoch, value.metadata_hash
            group.validated_epoch = value.validated_topology_epoch
            group.assignment_settings = {row.key: row.value for row in value.last_assignment_configs or ()}
        case s.StreamsGroupMetadataKey(), None:
            delete_group(core, core.streams_groups, group, MEMBER_TIMERS)
            core.timers.cancel((Kind.ASSIGNMENT, group.group_id, ""))
        case s.StreamsGroupTargetAssignmentMetadataKey(), (s.StreamsGroupTargetAssignmentMetadataValue() | None) as row:
            replay_target_epoch(group, row)
        case s.StreamsGroupTopologyKey(), s.StreamsGroupTopologyValue():
            group.put_topology(StreamsTopology(value))
        case s.StreamsGroupTopologyKey(), None:
            group.put_topology(None)
        case _:
            _replay_member(core, group, key, value)


def _replay_member(core: Core, group: StreamsGroup, key: Message, value: Message | None) -> None:
    match key, value:
        case s.StreamsGroupMemberMetadataKey(), s.StreamsGroupMemberMetadataValue():
            group.put(_described(_member(group, key.member_id), value))
        case s.StreamsGroupMemberMetadataKey(), None:
            remove_member(core, group, key.member_id, MEMBER_TIMERS)
        case s.StreamsGroupTargetAssignmentMemberKey(), s.StreamsGroupTargetAssignmentMemberValue():
            tasks = Tasks(task_sets(value.active_tasks), task_sets(value.standby_tasks), task_sets(value.warmup_tasks))
            group.targets[key.member_id] = tasks
        case s.StreamsGroupTargetAssignmentMemberKey(), None:
            group.targets.pop(key.member_id, None)
        case s.StreamsGroupCurrentMemberAssignmentKey(), s.StreamsGroupCurrentMemberAssignmentValue():
            group.put(_placed(_member(group, key.member_id), value))
        case s.StreamsGroupCurrentMemberAssignmentKey(), None if key.member_id in group.members:
            left = replace(group.members[key.member_id], epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
            group.put(replace(left, owned=NOTHING_OWNED, revoking=NOTHING_OWNED))


def _member(group: StreamsGroup, member_id: str) -> StreamsMember:
    return group.members.get(member_id) or StreamsMember(member_id)


def _described(member: StreamsMember, value: s.StreamsGroupMemberMetadataValue) -> StreamsMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        tags=tuple((row.key, row.value) for row in value.client_tags),
    )


def _placed(member: StreamsMember, value: s.StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
    epoch = value.member_epoch
    owned = OwnedTasks(
        _active(value.active_tasks, epoch), task_sets(value.standby_tasks), task_sets(value.warmup_tasks)
    )
    revoking = OwnedTasks(
        _active(value.active_tasks_pending_revocation, epoch),
        task_sets(value.standby_tasks_pending_revocation),
        task_sets(value.warmup_tasks_pending_revocation),
    )
    state = MemberState.of(value.state)
    return replace(
        member, epoch=epoch, previous_epoch=value.previous_member_epoch, state=state, owned=owned, revoking=revoking
    )


def _active(rows: Iterable[s.CurrentTaskIds], epoch: int) -> OwnedActive:
    return {row.subtopology_id: epochs_of(row, epoch) for row in rows if row.partitions}
