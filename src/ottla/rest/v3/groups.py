"""Consumer groups, their members, assignments and lag."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from ottla.clients.admin.model import GroupDescription, GroupMember, GroupType, PartitionLag
from ottla.clients.errors import ClientError, GroupNotFound
from ottla.common.ids import TopicPartition, java_string_hash
from ottla.rest.calls import Call, json_response
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import Links, cluster_of, existing, integer, not_found

_GROUP: Final = "KafkaConsumerGroup"
_CONSUMER: Final = "KafkaConsumer"
_ASSIGNMENT: Final = "KafkaConsumerAssignment"
_LAG: Final = "KafkaConsumerLag"
_SUMMARY: Final = "KafkaConsumerGroupLagSummary"
_PATH: Final = "/clusters/{cluster}/consumer-groups"
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_TYPES: Final = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.UNKNOWN)
"""The types of groups that consume by committed offsets."""


async def list_groups(call: Call) -> Response:
    """GET consumer-groups."""
    _, links = await cluster_of(call)
    admin = call.clients.admin
    names = [group.group_id for group in await admin.list_groups() if group.type in _TYPES]
    described = await existing(admin.describe_groups(names)) if names else {}
    leaders = await _leaders(call) if names else []
    data = (_group(described[name], leaders, links) for name in names if name in described)
    return links.collection(_GROUP, links.url("consumer-groups"), data)


async def get_group(call: Call) -> Response:
    """GET consumer-groups/GROUP."""
    _, links = await cluster_of(call)
    return json_response(_group(await _group_of(call), await _leaders(call), links))


async def list_consumers(call: Call) -> Response:
    """GET consumer-groups/GROUP/consumers: the members of the group."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    data = (_consumer(group.group_id, member, links) for member in group.members)
    return links.collection(_CONSUMER, links.url("consumer-groups", group.group_id, "consumers"), data)


async def get_consumer(call: Call) -> Response:
    """GET consumer-groups/GROUP/consumers/CONSUMER."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    return json_response(_consumer(group.group_id, _member_of(call, group), links))


async def list_assignments(call: Call) -> Response:
    """GET consumer-groups/GROUP/consumers/CONSUMER/assignments: the partitions of a member."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    member = _member_of(call, group)
    url = links.url("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    data = (_assignment(group.group_id, member, tp, links) for tp in sorted(member.assignment))
    return links.collection(_ASSIGNMENT, url, data)


async def get_assignment(call: Call) -> Response:
    """GET consumer-groups/GROUP/consumers/CONSUMER/assignments/TOPIC/partitions/PARTITION."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    member = _member_of(call, group)
    tp = _partition_of(call)
    if tp not in member.assignment:
        raise not_found(f"{tp.topic}-{tp.partition} is not assigned to consumer {member.member_id}.")
    return json_response(_assignment(group.group_id, member, tp, links))


async def list_lags(call: Call) -> Response:
    """GET consumer-groups/GROUP/lags: the lag in each partition with a committed offset, the largest first."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    members = _assigned(group)
    lags = await _lags(call, group.group_id)
    order = sorted(lags, key=lambda tp: (-lags[tp].lag, tp))
    data = (_lag(group.group_id, tp, lags[tp], members.get(tp), links) for tp in order)
    return links.collection(_LAG, links.url("consumer-groups", group.group_id, "lags"), data)


async def get_lag(call: Call) -> Response:
    """GET consumer-groups/GROUP/lags/TOPIC/partitions/PARTITION."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    tp = _partition_of(call)
    lag = (await _lags(call, group.group_id)).get(tp)
    if lag is None:
        raise not_found(f"Group {group.group_id} has no offset of {tp.topic}-{tp.partition}.")
    return json_response(_lag(group.group_id, tp, lag, _assigned(group).get(tp), links))


async def get_lag_summary(call: Call) -> Response:
    """GET consumer-groups/GROUP/lag-summary: the largest lag, and the sum."""
    _, links = await cluster_of(call)
    group = await _group_of(call)
    lags = await _lags(call, group.group_id)
    largest = min(lags, key=lambda tp: (-lags[tp].lag, tp))
    member = _assigned(group).get(largest)
    member_id = member.member_id if member else ""
    fields = {
        "consumer_group_id": group.group_id,
        "max_lag_consumer_id": member_id,
        "max_lag_instance_id": member.instance_id if member else None,
        "max_lag_client_id": member.client_id if member else "",
        "max_lag_topic_name": largest.topic,
        "max_lag_partition_id": largest.partition,
        "max_lag": lags[largest].lag,
        "total_lag": sum(lag.lag for lag in lags.values()),
        "max_lag_consumer": links.related("consumer-groups", group.group_id, "consumers", *filter(None, [member_id])),
        "max_lag_partition": links.related("topics", largest.topic, "partitions", largest.partition),
    }
    url = links.url("consumer-groups", group.group_id, "lag-summary")
    name = links.name("consumer-group", group.group_id, "lag-summary")
    return json_response(links.resource(_SUMMARY, url, name, fields))


async def _group_of(call: Call) -> GroupDescription:
    """Return the group in the path. Raises HttpError."""
    name = call.path("group")
    try:
        group = await call.clients.admin.describe_group(name)
    except GroupNotFound as error:
        raise not_found(f"Consumer Group {name} could not be found.") from error
    if group.type not in _TYPES:
        raise not_found(f"{name} is a {group.type.value} group, not a consumer group.")
    return group


def _member_of(call: Call, group: GroupDescription) -> GroupMember:
    """Return the member in the path. Raises HttpError."""
    wanted = call.path("consumer")
    for member in group.members:
        if member.member_id == wanted:
            return member
    raise not_found(f"Consumer {wanted} does not exist.")


def _partition_of(call: Call) -> TopicPartition:
    """Return the partition in the path. Raises HttpError."""
    return TopicPartition(call.path("topic"), integer(call.path("partition"), "Partition"))


async def _lags(call: Call, group: str) -> dict[TopicPartition, PartitionLag]:
    """Return the lag of each partition. Raises HttpError if the group committed nothing."""
    lags = await call.clients.admin.group_lag(group)
    if not lags:
        raise not_found("Consumer group offsets could not be found.")
    return lags


def _assigned(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {tp: member for member in group.members for tp in member.assignment}


async def _leaders(call: Call) -> list[int | None]:
    """Return the coordinators by partition of the topic of groups; empty if the user may not see it."""
    try:
        topic = await call.clients.admin.describe_topic(_OFFSETS_TOPIC)
    except ClientError:
        return []
    return [partition.leader for partition in topic.partitions]


def _group(group: GroupDescription, leaders: list[int | None], links: Links) -> dict[str, Any]:
    path = ("consumer-groups", group.group_id)
    fields: dict[str, Any] = {
        "consumer_group_id": group.group_id,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": group.state.name,
        "type": group.type.name,
        "is_mixed_consumer_group": False,
    }
    coordinator = leaders[(java_string_hash(group.group_id) & 0x7FFFFFFF) % len(leaders)] if leaders else None
    if coordinator is not None:
        fields["coordinator"] = links.related("brokers", coordinator)
    fields |= {"consumers": links.related(*path, "consumers"), "lag_summary": links.related(*path, "lag-summary")}
    return links.resource(_GROUP, links.url(*path), links.name("consumer-group", group.group_id), fields)


def _consumer(group: str, member: GroupMember, links: Links) -> dict[str, Any]:
    path = ("consumer-groups", group, "consumers", member.member_id)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "assignments": links.related(*path, "assignments"),
    }
    return links.resource(
        _CONSUMER, links.url(*path), links.name("consumer-group", group, "consumer", member.member_id), fields
    )


def _assignment(group: str, member: GroupMember, tp: TopicPartition, links: Links) -> dict[str, Any]:
    place = (tp.topic, "partitions", tp.partition)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member.member_id,
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "partition": links.related("topics", *place),
        "lag": links.related("consumer-groups", group, "lags", *place),
    }
    url = links.url("consumer-groups", group, "consumers", member.member_id, "assignments", *place)
    name = links.name(
        "consumer-group", group, "consumer", member.member_id, "assignment", tp.topic, "partition", tp.partition
    )
    return links.resource(_ASSIGNMENT, url, name, fields)


def _lag(group: str, tp: TopicPartition, lag: PartitionLag, member: GroupMember | None, links: Links) -> dict[str, Any]:
    fields = {
        "consumer_group_id": group,
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "consumer_id": member.member_id if member else "",
        "instance_id": member.instance_id if member else None,
        "client_id": member.client_id if member else "",
        "current_offset": lag.committed,
        "log_end_offset": lag.end,
        "lag": lag.lag,
    }
    url = links.url("consumer-groups", group, "lags", tp.topic, "partitions", tp.partition)
    name = links.name("consumer-group", group, "lag", tp.topic, "partition", tp.partition)
    return links.resource(_LAG, url, name, fields)


_ONE: Final = f"{_PATH}/{{group}}"
_ASSIGNMENTS: Final = f"{_ONE}/consumers/{{consumer}}/assignments"
OPERATIONS: Final = (
    Operation("GET", _PATH, list_groups, "List the consumer groups", f"{_GROUP}List"),
    Operation("GET", _ONE, get_group, "Get a consumer group", _GROUP),
    Operation("GET", f"{_ONE}/consumers", list_consumers, "List the members of a group", f"{_CONSUMER}List"),
    Operation("GET", f"{_ONE}/consumers/{{consumer}}", get_consumer, "Get a member", _CONSUMER),
    Operation("GET", _ASSIGNMENTS, list_assignments, "List the partitions of a member", f"{_ASSIGNMENT}List"),
    Operation(
        "GET", f"{_ASSIGNMENTS}/{{topic}}/partitions/{{partition}}", get_assignment, "Get a partition of a member",
        _ASSIGNMENT,
    ),
    Operation("GET", f"{_ONE}/lag-summary", get_lag_summary, "Get the largest lag and the sum", _SUMMARY),
    Operation("GET", f"{_ONE}/lags", list_lags, "List the lag in each partition", f"{_LAG}List"),
    Operation("GET", f"{_ONE}/lags/{{topic}}/partitions/{{partition}}", get_lag, "Get the lag in a partition", _LAG),
)  # fmt: skip
