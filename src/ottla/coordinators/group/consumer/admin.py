"""Requests that describe, list and delete consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.common.errors import KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.heartbeat import existing_group
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.consumer.records import group_tombstones
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.events import DeleteGroup, DescribeConsumerGroup
from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.modern.requests import delete_group
from ottla.protocol.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

STATES = ("Assigning", "Reconciling")
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(core: Core, call: Call[DescribeConsumerGroup], question: DescribeConsumerGroup, _now: Moment) -> Effects:
    """Describe a consumer group with its members and their assignments."""
    try:
        group = existing_group(core, question.group_id, "Group")
    except KafkaError as error:
        row = DescribedGroup(group_id=question.group_id, error_code=error.code, error_message=error.message)
        return [Reply(call, row)]
    names = +group.assignors
    assignor = max(sorted(names), key=names.__getitem__) if names else core.config.consumer.assignors[0]
    row = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=assignor,
        members=[_member(core.topics, group, member) for member in group.members.values()],
    )
    return [Reply(call, row)]


def _member(topics: Topics, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(topics, member.assigned),
        target_assignment=_assignment(topics, group.target.of(member.member_id)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(topics: Topics, assigned: Mapping[Uuid, Iterable[int]]) -> Assignment:
    """Partitions with the names of their topics; deleted topics are omitted."""
    rows = [
        TopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in assigned.items()
        if topic_id in topics.by_id
    ]
    return Assignment(topic_partitions=rows)


def delete(core: Core, call: Call[DeleteGroup], _request: DeleteGroup, group: ConsumerGroup, _now: Moment) -> Effects:
    """Delete a consumer group that has no members, with its offsets."""
    return delete_group(core, call, group, group_tombstones(group))
