"""Requests that describe and list share groups."""

from __future__ import annotations

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.events import Call, Effects, Moment, Reply
from ottla.coordinators.group.core import Core, refuse_join
from ottla.coordinators.group.modern import Topics
from ottla.coordinators.group.share.events import DescribeShareGroup
from ottla.coordinators.group.share.group import ShareGroup, ShareMember
from ottla.coordinators.group.share.heartbeat import existing_group
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

ASSIGNOR = "simple"


def describe(core: Core, call: Call[DescribeShareGroup], question: DescribeShareGroup, _now: Moment) -> Effects:
    """Describe a share group with its members and their assignments."""
    try:
        group = existing_group(core, question.group_id, "Group")
    except KafkaError as error:
        row = DescribedGroup(group_id=question.group_id, error_code=error.code, error_message=error.message)
        return [Reply(call, row)]
    row = DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target.epoch,
        assignor_name=ASSIGNOR,
        members=[_member(core.topics, member) for member in group.members.values()],
    )
    return [Reply(call, row)]


def _member(topics: Topics, member: ShareMember) -> Member:
    rows = [
        TopicPartitions(topic_id=topic_id, topic_name=topics.by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in member.assigned.items()
        if topic_id in topics.by_id
    ]
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=Assignment(topic_partitions=rows),
    )


def refuse_classic(
    _core: Core, call: Call[JoinGroupRequest], _request: JoinGroupRequest, _group: ShareGroup, _now: Moment
) -> Effects:
    """Refuse a member of the classic protocol."""
    return [refuse_join(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
