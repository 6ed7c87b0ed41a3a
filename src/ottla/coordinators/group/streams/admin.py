"""Requests that describe, list and delete streams groups, and classic members that join an empty one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.events import DeleteGroup
from ottla.coordinators.group.follow_ups import JoinConvertedGroup
from ottla.coordinators.group.modern.requests import delete_group
from ottla.coordinators.group.streams.events import DescribeStreamsGroup
from ottla.coordinators.group.streams.fencing import existing_group
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import StreamsMember
from ottla.coordinators.group.streams.records import group_tombstones
from ottla.coordinators.group.streams.tasks import Tasks
from ottla.coordinators.group.streams.topics import ConfiguredSubtopology, InternalTopic
from ottla.protocol import streams_group_records as s
from ottla.protocol.messages import streams_group_describe as d
from ottla.protocol.messages.join_group import JoinGroupRequest

STATES = ("NotReady",)


def describe(core: Core, call: Call[DescribeStreamsGroup], question: DescribeStreamsGroup, _now: Moment) -> Effects:
    """Describe a streams group with its topology, its members and their tasks."""
    try:
        group = existing_group(core, question.group_id, "Group")
    except KafkaError as error:
        row = d.DescribedGroup(group_id=question.group_id, error_code=error.code, error_message=error.message)
        return [Reply(call, row)]
    row = d.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )
    return [Reply(call, row)]


def _topology(group: StreamsGroup) -> d.Topology | None:
    """The topology, with the decided numbers of partitions if its topics are as they should be."""
    if group.topology is None:
        return None
    configured = group.configured
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        rows = [_configured(name, row) for name, row in configured.subtopologies.items()]
    else:
        rows = [_stored(name, row) for name, row in group.topology.by_id.items()]
    return d.Topology(epoch=group.topology.epoch, subtopologies=rows)


def _configured(name: str, row: ConfiguredSubtopology) -> d.Subtopology:
    return d.Subtopology(
        subtopology_id=name,
        source_topics=sorted(row.source_topics),
        repartition_sink_topics=sorted(row.repartition_sinks),
        state_changelog_topics=_infos(row.changelogs),
        repartition_source_topics=_infos(row.repartition_sources),
    )


def _stored(name: str, row: s.Subtopology) -> d.Subtopology:
    return d.Subtopology(
        subtopology_id=name,
        source_topics=sorted(row.source_topics),
        repartition_sink_topics=sorted(row.repartition_sink_topics),
        state_changelog_topics=_infos(map(_internal, row.state_changelog_topics)),
        repartition_source_topics=_infos(map(_internal, row.repartition_source_topics)),
    )


def _internal(row: s.InternalTopicInfo) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in row.topic_configs)
    return InternalTopic(row.name, row.partitions, row.replication_factor, configs)


def _infos(topics: Iterable[InternalTopic]) -> list[d.TopicInfo]:
    return [
        d.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[d.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> d.Member:
    endpoint, owned = member.endpoint, member.owned
    target = group.targets.get(member.member_id, Tasks())
    return d.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else d.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[d.KeyValue(key=key, value=value) for key, value in member.tags],
        assignment=_assignment(owned.active, owned.standby, owned.warmup),
        target_assignment=_assignment(*target),
    )


def _assignment(*roles: Mapping[str, Iterable[int]]) -> d.Assignment:
    active, standby, warmup = (
        [d.TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in sorted(tasks)] for tasks in roles
    )
    return d.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)


def delete(core: Core, call: Call[DeleteGroup], _request: DeleteGroup, group: StreamsGroup, _now: Moment) -> Effects:
    """Delete a streams group that has no members, with its offsets."""
    return delete_group(core, call, group, group_tombstones(group))


def join_classic(
    core: Core, call: Call[JoinGroupRequest], request: JoinGroupRequest, group: StreamsGroup, _now: Moment
) -> Effects | None:
    """Convert an empty group to a classic group; None if the join is rejected in any case."""
    if not group.is_empty:
        return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if request.member_id or not request.protocols:
        return None
    if not core.config.min_session_timeout_ms <= request.session_timeout_ms <= core.config.max_session_timeout_ms:
        return None
    return [core.append(group_tombstones(group), JoinConvertedGroup(call, request))]
