"""Encodes the records of a streams group; `replay` decodes them. Versions are as in Kafka 4.3."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinators.events import RecordBytes
from ottla.coordinators.group.modern.records import VERSION, RecordTypes
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import StreamsMember
from ottla.coordinators.group.streams.tasks import OwnedActive, Tasks, TaskSets
from ottla.coordinators.group.streams.topology import StreamsTopology
from ottla.protocol import streams_group_records as s
from ottla.protocol.group_records import encode_key, encode_value

TYPES = RecordTypes(
    s.StreamsGroupMetadataKey,
    s.StreamsGroupMemberMetadataKey,
    s.StreamsGroupTargetAssignmentMetadataKey,
    s.StreamsGroupTargetAssignmentMetadataValue,
    s.StreamsGroupTargetAssignmentMemberKey,
    s.StreamsGroupCurrentMemberAssignmentKey,
)


def member_record(group_id: str, member: StreamsMember) -> RecordBytes:
    """The properties that a member reported."""
    value = s.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.endpoint is None else s.Endpoint(host=member.endpoint[0], port=member.endpoint[1]),
        client_tags=[s.KeyValue(key=key, value=value) for key, value in member.tags],
    )
    return TYPES.member_record(group_id, member.member_id, value)


def epoch_record(
    group: StreamsGroup, epoch: int, metadata_hash: int, validated: int, settings: Mapping[str, str]
) -> RecordBytes:
    """The group's epoch, and the topology and settings for which it is assigned."""
    rows = [s.LastAssignmentConfig(key=key, value=settings[key]) for key in sorted(settings)]
    value = s.StreamsGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash, validated_topology_epoch=validated, last_assignment_configs=rows
    )
    return TYPES.epoch_record(group.group_id, value)


def topology_record(group_id: str, topology: StreamsTopology) -> RecordBytes:
    """The group's topology."""
    return topology_key(group_id), encode_value(topology.record, VERSION)


def topology_key(group_id: str) -> bytes:
    """The key of the group's topology."""
    return encode_key(s.StreamsGroupTopologyKey(group_id=group_id))


def target_record(group_id: str, member_id: str, target: Tasks) -> RecordBytes:
    """A member's part of the target assignment."""
    value = s.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target(target.active), standby_tasks=_target(target.standby), warmup_tasks=_target(target.warmup)
    )
    return TYPES.target_record(group_id, member_id, value)


def current_record(group_id: str, member: StreamsMember) -> RecordBytes:
    """The epoch of a member, and the tasks that it owns."""
    owned, revoking = member.owned, member.revoking
    value = s.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_active(owned.active),
        standby_tasks=_current(owned.standby),
        warmup_tasks=_current(owned.warmup),
        active_tasks_pending_revocation=_active(revoking.active),
        standby_tasks_pending_revocation=_current(revoking.standby),
        warmup_tasks_pending_revocation=_current(revoking.warmup),
    )
    return TYPES.current_record(group_id, member.member_id, value)


def group_tombstones(group: StreamsGroup) -> list[RecordBytes]:
    """The records that delete the group. Kafka fails on another order."""
    return [*TYPES.tombstones(group.group_id, group.members), (topology_key(group.group_id), None)]


def _target(tasks: TaskSets) -> list[s.TargetTaskIds]:
    return [s.TargetTaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _current(tasks: TaskSets) -> list[s.CurrentTaskIds]:
    return [s.CurrentTaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)]


def _active(tasks: OwnedActive) -> list[s.CurrentTaskIds]:
    rows = []
    for name in sorted(tasks):
        partitions = sorted(tasks[name])
        epochs = [tasks[name][partition] for partition in partitions]
        rows.append(s.CurrentTaskIds(subtopology_id=name, partitions=partitions, assignment_epochs=epochs))
    return rows
