"""Plans about share groups (KIP-932): describe, and where they start to read each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla.clients.admin.core import Call, Plan, Route
from ottla.clients.admin.model import GroupDescription, GroupMember, GroupState, GroupType, ShareGroupOffset
from ottla.clients.errors import BrokerError, error_for
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_group_describe,
)

PROTOCOL_TYPE = "share"
NO_OFFSET = -1


def ask(groups: Sequence[str]) -> Message:
    return share_group_describe.ShareGroupDescribeRequest(list(groups))


def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, GroupDescription | BrokerError]]:
    for row in response.groups:
        if row.error_code:
            yield row.group_id, error_for(row.error_code, row.error_message)
            continue
        members = tuple(
            GroupMember(
                m.member_id, None, m.client_id, m.client_host, tuple(m.subscribed_topic_names),
                assigned(m.assignment), m.member_epoch,
            )
            for m in row.members
        )  # fmt: skip
        yield row.group_id, described(row, GroupType.SHARE, PROTOCOL_TYPE, row.assignor_name, members)


def described(
    row: Any, group_type: GroupType, protocol_type: str, assignor: str, members: tuple[GroupMember, ...]
) -> GroupDescription:
    """Return the description of a group of a modern type."""
    return GroupDescription(
        row.group_id, GroupState(row.group_state), group_type, protocol_type, assignor, members,
        row.group_epoch, row.assignment_epoch,
    )  # fmt: skip


def assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of a described member's assignment, sorted."""
    return tuple(sorted(TopicPartition(t.topic_name, i) for t in assignment.topic_partitions for i in t.partitions))


def offsets(group: str, partitions: Iterable[TopicPartition] | None) -> Plan[dict[TopicPartition, ShareGroupOffset]]:
    """Return where a share group starts in each partition; None: in all partitions. Others are omitted."""
    module = describe_share_group_offsets
    topics = None
    if partitions is not None:
        topics = [
            module.DescribeShareGroupOffsetsRequestTopic(name, rows) for name, rows in by_topic(partitions).items()
        ]

    def request(_: Sequence[str]) -> Message:
        wanted = module.DescribeShareGroupOffsetsRequestGroup(group, topics)
        return module.DescribeShareGroupOffsetsRequest([wanted])

    def answer(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
        found: dict[TopicPartition, ShareGroupOffset] = {}
        for each in response.groups:
            if each.error_code:
                yield keys[0], error_for(each.error_code, each.error_message)
                return
            for topic in each.topics:
                for row in topic.partitions:
                    if row.error_code:
                        yield keys[0], error_for(row.error_code, row.error_message)
                        return
                    if row.start_offset != NO_OFFSET:
                        lag = None if row.lag < 0 else row.lag
                        at = ShareGroupOffset(row.start_offset, row.leader_epoch, lag)
                        found[TopicPartition(topic.topic_name, row.partition_index)] = at
        yield keys[0], found

    call: Call[str, Any] = Call(Route.COORDINATORS, [group], request, answer)
    found: dict[TopicPartition, ShareGroupOffset] = (yield call).one()
    return dict(sorted(found.items()))


def alter(group: str, to: Mapping[TopicPartition, int]) -> Call[TopicPartition, None]:
    module = alter_share_group_offsets

    def request(keys: Sequence[TopicPartition]) -> Message:
        topics = [
            module.AlterShareGroupOffsetsRequestTopic(
                name,
                [module.AlterShareGroupOffsetsRequestPartition(i, to[TopicPartition(name, i)]) for i in indexes],
            )
            for name, indexes in by_topic(keys).items()
        ]
        return module.AlterShareGroupOffsetsRequest(group, topics)

    def answer(response: Any, keys: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, BrokerError | None]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code, response.error_message)
        for topic in response.responses:
            for row in topic.partitions:
                error = error_for(row.error_code, row.error_message) if row.error_code else None
                yield TopicPartition(topic.topic_name, row.partition_index), error

    return Call(Route.COORDINATORS, list(to), request, answer, group=group)


def forget(group: str, topics: Iterable[str]) -> Call[str, None]:
    module = delete_share_group_offsets

    def request(keys: Sequence[str]) -> Message:
        rows = [module.DeleteShareGroupOffsetsRequestTopic(name) for name in keys]
        return module.DeleteShareGroupOffsetsRequest(group, rows)

    def answer(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code, response.error_message)
        for row in response.responses:
            yield row.topic_name, error_for(row.error_code, row.error_message) if row.error_code else None

    return Call(Route.COORDINATORS, list(dict.fromkeys(topics)), request, answer, group=group)
