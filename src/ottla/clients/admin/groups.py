"""Plans about groups and offsets: list, describe, delete; committed offsets, first and last offsets of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla.clients.admin import share_groups, streams_groups
from ottla.clients.admin.core import Call, Outcome, Plan, Route
from ottla.clients.admin.model import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    GroupState,
    GroupType,
    OffsetAt,
    OffsetSpec,
    PartitionLag,
)
from ottla.clients.errors import BrokerError, ClientError, GroupNotFound, UnsupportedByBroker, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    leave_group,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from ottla.protocol.wire import DecodeError

CONSUMER_REPLICA = -1
# Version 10 has topic ids instead of names.
LAST_VERSION_WITH_NAMES = 9


def list_all(states: Iterable[GroupState], types: Iterable[GroupType]) -> Plan[list[GroupListing]]:
    wanted_states, wanted_types = list(states), list(types)
    request = list_groups.ListGroupsRequest([s.value for s in wanted_states], [t.value for t in wanted_types])

    def read(response: Any, nodes: Sequence[int]) -> Iterator[tuple[int, list[GroupListing] | BrokerError]]:
        if response.error_code:
            yield nodes[0], error_for(response.error_code)
            return
        rows = [
            GroupListing(row.group_id, row.protocol_type, GroupState(row.group_state), GroupType(row.group_type))
            for row in response.groups
        ]
        yield nodes[0], rows

    outcome = yield Call(Route.BROKERS, None, lambda _: request, read)
    groups = {group.group_id: group for rows in outcome.all().values() for group in rows}
    # An old broker does not filter and returns all groups.
    return [
        group
        for _, group in sorted(groups.items())
        if (not wanted_states or group.state in wanted_states) and (not wanted_types or group.type in wanted_types)
    ]


def describe(groups: Iterable[str]) -> Plan[Outcome[str, GroupDescription]]:
    """Describe classic groups and, where a broker has them, consumer, share and streams groups."""
    outcome: Outcome[str, GroupDescription]
    outcome = yield Call(Route.COORDINATORS, list(dict.fromkeys(groups)), _ask_classic, _classic)
    share, streams = (share_groups.ask, share_groups.read), (streams_groups.ask, streams_groups.read)
    for ask, read in ((_ask_modern, _modern), share, streams):
        missing = [group for group, error in outcome.errors.items() if isinstance(error, GroupNotFound)]
        if not missing:
            break
        newer: Outcome[str, GroupDescription] = yield Call(Route.COORDINATORS, missing, ask, read)
        for group, result in newer.results.items():
            del outcome.errors[group]
            outcome.results[group] = result
        for group, error in newer.errors.items():
            if not isinstance(error, (GroupNotFound, UnsupportedByBroker)) and not _is_disabled(error):
                outcome.errors[group] = error
    return outcome


def _is_disabled(error: ClientError) -> bool:
    """Whether the broker knows the request, but its feature is not enabled: then it has no such group."""
    return isinstance(error, BrokerError) and error.code == ErrorCode.UNSUPPORTED_VERSION


def _ask_classic(groups: Sequence[str]) -> Message:
    return describe_groups.DescribeGroupsRequest(list(groups))


def _ask_modern(groups: Sequence[str]) -> Message:
    return consumer_group_describe.ConsumerGroupDescribeRequest(list(groups))


def _classic(response: Any, _: Sequence[str]) -> Iterator[tuple[str, GroupDescription | BrokerError]]:
    for row in response.groups:
        state = GroupState(row.group_state)
        if row.error_code:
            yield row.group_id, error_for(row.error_code, row.error_message)
        elif state is GroupState.DEAD and not row.members:
            # Before version 6 the state Dead means that the group does not exist.
            yield row.group_id, GroupNotFound(f"There is no group {row.group_id!r}")
        else:
            members = tuple(_classic_member(member, row.protocol_type) for member in row.members)
            described = (row.group_id, state, GroupType.CLASSIC, row.protocol_type, row.protocol_data, members)
            yield row.group_id, GroupDescription(*described)


def _classic_member(row: describe_groups.DescribedGroupMember, protocol_type: str) -> GroupMember:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == PROTOCOL_TYPE:
        try:
            if row.member_metadata:
                topics = tuple(decode_subscription(row.member_metadata).topics)
            if row.member_assignment:
                given = decode_assignment(row.member_assignment).assigned_partitions
                assignment = tuple(sorted(TopicPartition(part.topic, i) for part in given for i in part.partitions))
        except DecodeError:
            # Members may use a format of their own here, which only they can parse.
            topics = assignment = ()
    return GroupMember(row.member_id, row.group_instance_id, row.client_id, row.client_host, topics, assignment)


def _modern(response: Any, _: Sequence[str]) -> Iterator[tuple[str, GroupDescription | BrokerError]]:
    for row in response.groups:
        if row.error_code:
            yield row.group_id, error_for(row.error_code, row.error_message)
            continue
        members = tuple(
            GroupMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                tuple(m.subscribed_topic_names),
                share_groups.assigned(m.assignment),
                m.member_epoch,
                share_groups.assigned(m.target_assignment),
            )
            for m in row.members
        )
        described = share_groups.described(row, GroupType.CONSUMER, PROTOCOL_TYPE, row.assignor_name, members)
        yield row.group_id, described


def delete(groups: Iterable[str]) -> Call[str, None]:
    def read(response: Any, _: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        for row in response.results:
            yield row.group_id, error_for(row.error_code) if row.error_code else None

    request = delete_groups.DeleteGroupsRequest
    return Call(Route.COORDINATORS, list(dict.fromkeys(groups)), lambda keys: request(list(keys)), read)


def remove_members(group: str, instance_ids: Iterable[str], reason: str) -> Call[str, None]:
    def request(keys: Sequence[str]) -> Message:
        members = [leave_group.MemberIdentity("", instance_id, reason) for instance_id in keys]
        return leave_group.LeaveGroupRequest(group, members=members)

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code)
        for row in response.members:
            yield row.group_instance_id, error_for(row.error_code) if row.error_code else None

    return Call(Route.COORDINATORS, list(dict.fromkeys(instance_ids)), request, read, group=group)


# -- offsets of groups -----------------------------------------------------------------------------------------


def committed(
    group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = False
) -> Plan[dict[TopicPartition, GroupOffset]]:
    """Return the committed offsets of a group, of all partitions if `partitions` is None. Others are omitted."""
    topics = None if partitions is None else by_topic(partitions)

    def request(_: Sequence[str]) -> Message:
        module = offset_fetch
        old = None if topics is None else [module.OffsetFetchRequestTopic(*item) for item in topics.items()]
        new = (
            None
            if topics is None
            else [module.OffsetFetchRequestTopics(name, partition_indexes=rows) for name, rows in topics.items()]
        )
        wanted = module.OffsetFetchRequestGroup(group, topics=new)
        return module.OffsetFetchRequest(group, old, [wanted], require_stable=require_stable)

    def read(
        response: Any, keys: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, GroupOffset] | BrokerError]]:
        yield keys[0], _offsets_or_error(response.groups[0] if response.groups else response)

    call: Call[str, Any] = Call(Route.COORDINATORS, [group], request, read, version_limit=LAST_VERSION_WITH_NAMES)
    found: dict[TopicPartition, GroupOffset] = (yield call).one()
    return dict(sorted(found.items()))


def committed_by_groups(groups: Iterable[str]) -> Call[str, dict[TopicPartition, GroupOffset]]:
    """Return all committed offsets of several groups, with one request for each coordinator. Kafka 3.0 or newer."""

    def request(keys: Sequence[str]) -> Message:
        wanted = [offset_fetch.OffsetFetchRequestGroup(group, topics=None) for group in keys]
        return offset_fetch.OffsetFetchRequest(groups=wanted, require_stable=False)

    def read(
        response: Any, keys: Sequence[str]
    ) -> Iterator[tuple[str, dict[TopicPartition, GroupOffset] | BrokerError]]:
        found = {row.group_id: _offsets_or_error(row) for row in response.groups}
        for group in keys:
            yield group, found.get(group, error_for(ErrorCode.UNSUPPORTED_VERSION, "several groups need Kafka 3.0"))

    return Call(Route.COORDINATORS, list(dict.fromkeys(groups)), request, read, version_limit=LAST_VERSION_WITH_NAMES)


def _offsets_or_error(answer: Any) -> dict[TopicPartition, GroupOffset] | BrokerError:
    if answer.error_code:
        return error_for(answer.error_code)
    offsets = {}
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code:
                return error_for(row.error_code)
            if row.committed_offset >= 0:
                offset = GroupOffset(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
                offsets[TopicPartition(topic.name, row.partition_index)] = offset
    return offsets


def alter(group: str, offsets: Mapping[TopicPartition, GroupOffset | int]) -> Call[TopicPartition, None]:
    module = offset_commit

    def row(partition: TopicPartition) -> offset_commit.OffsetCommitRequestPartition:
        to = offsets[partition]
        to = GroupOffset(to) if isinstance(to, int) else to
        return module.OffsetCommitRequestPartition(partition.partition, to.offset, to.leader_epoch, to.metadata)

    def request(keys: Sequence[TopicPartition]) -> Message:
        topics = [
            module.OffsetCommitRequestTopic(name, partitions=[row(TopicPartition(name, i)) for i in indexes])
            for name, indexes in by_topic(keys).items()
        ]
        return module.OffsetCommitRequest(group, topics=topics)

    return Call(
        Route.COORDINATORS, list(offsets), request, _by_partition, group=group, version_limit=LAST_VERSION_WITH_NAMES
    )


def forget(group: str, partitions: Iterable[TopicPartition]) -> Call[TopicPartition, None]:
    def request(keys: Sequence[TopicPartition]) -> Message:
        module = offset_delete
        topics = [
            module.OffsetDeleteRequestTopic(name, [module.OffsetDeleteRequestPartition(i) for i in indexes])
            for name, indexes in by_topic(keys).items()
        ]
        return module.OffsetDeleteRequest(group, topics)

    def read(response: Any, keys: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, BrokerError | None]]:
        if response.error_code:
            for key in keys:
                yield key, error_for(response.error_code)
        yield from _by_partition(response, keys)

    return Call(Route.COORDINATORS, list(partitions), request, read, group=group)


def _by_partition(response: Any, _: object) -> Iterator[tuple[TopicPartition, BrokerError | None]]:
    for topic in response.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.partition_index)
            yield key, error_for(row.error_code) if row.error_code else None


# -- offsets of partitions -------------------------------------------------------------------------------------


def offsets_at(
    specs: Mapping[TopicPartition, OffsetSpec | int], read_committed: bool
) -> Call[TopicPartition, OffsetAt]:
    def request(keys: Sequence[TopicPartition]) -> Message:
        module = list_offsets
        topics = [
            module.ListOffsetsTopic(
                name,
                [module.ListOffsetsPartition(i, timestamp=int(specs[TopicPartition(name, i)])) for i in indexes],
            )
            for name, indexes in by_topic(keys).items()
        ]
        return module.ListOffsetsRequest(CONSUMER_REPLICA, int(read_committed), topics, timeout_ms=30_000)

    def read(response: Any, _: object) -> Iterator[tuple[TopicPartition, OffsetAt | BrokerError]]:
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    yield key, error_for(row.error_code)
                else:
                    yield key, OffsetAt(row.offset, row.timestamp, row.leader_epoch)

    return Call(Route.LEADERS, list(specs), request, read)


def lag(group: str) -> Plan[dict[TopicPartition, PartitionLag]]:
    offsets = yield from committed(group, None)
    if not offsets:
        return {}
    outcome = yield offsets_at(dict.fromkeys(offsets, OffsetSpec.LATEST), read_committed=False)
    ends: dict[TopicPartition, OffsetAt] = outcome.all()
    return {partition: PartitionLag(offset.offset, ends[partition].offset) for partition, offset in offsets.items()}
