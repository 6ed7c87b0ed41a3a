"""Topics, their partitions, replicas, offsets and reassignments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from ottla.clients.admin import PartialFailure
from ottla.clients.admin.model import NewTopic, OffsetSpec, PartitionDescription, Reassignment, TopicDescription
from ottla.clients.errors import InvalidTopic, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.rest.calls import Call, json_response
from ottla.rest.errors import UNKNOWN_TOPIC_OR_PARTITION
from ottla.rest.v3.clusters import replica
from ottla.rest.v3.operations import Operation
from ottla.rest.v3.resources import (
    NOT_FOUND,
    Links,
    bad_request,
    checked,
    cluster_of,
    existing,
    integer,
    not_found,
    object_body,
    payload_error,
)
from ottla.web.errors import HttpError

_TOPIC: Final = "KafkaTopic"
_PARTITION: Final = "KafkaPartition"
_REPLICA: Final = "KafkaReplica"
_REASSIGNMENT: Final = "KafkaReassignment"
_OFFSETS: Final = "KafkaPartitionWithOffsets"
_TOPICS_PATH: Final = "/clusters/{cluster}/topics"
_PARTITIONS_PATH: Final = f"{_TOPICS_PATH}/{{topic}}/partitions"


def not_hosted() -> HttpError:
    """Return the error of an unknown topic, with the text of Kafka's exception."""
    return HttpError(NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


async def list_topics(call: Call) -> Response:
    """GET topics: all topics that the user may see, also internal ones."""
    _, links = await cluster_of(call)
    admin = call.clients.admin
    listed = await admin.list_topics(include_internal=True)
    described = await existing(admin.describe_topics([topic.name for topic in listed])) if listed else {}
    data = (_topic(described[name], links) for name in sorted(described))
    return links.collection(_TOPIC, links.url("topics"), data)


async def get_topic(call: Call) -> Response:
    """GET topics/TOPIC."""
    _, links = await cluster_of(call)
    return json_response(_topic(await topic_of(call), links))


async def create_topic(call: Call) -> Response:
    """POST topics: create a topic, or with `validate_only` only check whether it could be created."""
    _, links = await cluster_of(call)
    body = await object_body(call, "topic_name")
    name = checked(body, "topic_name", str)
    validate_only = checked(body, "validate_only", bool, default=False)
    assignments = _assignments(checked(body, "replicas_assignments", dict, {}))
    new = NewTopic(
        name,
        -1 if assignments else checked(body, "partitions_count", int, -1),
        -1 if assignments else checked(body, "replication_factor", int, -1),
        _configs(checked(body, "configs", list, [])),
        assignments or None,
    )
    try:
        created = (await call.clients.admin.create_topics([new], validate_only=validate_only))[name]
    except PartialFailure as failure:
        error = failure.errors[name]
        if isinstance(error, InvalidTopic):
            raise payload_error(f"Invalid topic name. {error}") from error
        raise
    topic = TopicDescription(name, created.topic_id, is_internal=False, partitions=())
    numbers = {
        "replication_factor": max(created.replication_factor, 0),
        "partitions_count": max(created.partitions, 0),
    }
    return json_response(
        _topic(topic, links) | numbers,
        200 if validate_only else 201,
        headers={"Location": links.url("topics", name)},
    )


async def grow_topic(call: Call) -> Response:
    """PATCH topics/TOPIC: raise the number of partitions."""
    _, links = await cluster_of(call)
    body = await object_body(call, "partitions_count")
    count = checked(body, "partitions_count", int)
    try:
        await call.clients.admin.create_partitions({call.path("topic"): count})
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise not_hosted() from error
    return json_response(_topic(await topic_of(call), links))


async def delete_topic(call: Call) -> Response:
    """DELETE topics/TOPIC."""
    await cluster_of(call)
    try:
        await call.clients.admin.delete_topic(call.path("topic"))
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise not_hosted() from error
    return Response(status_code=204)


async def list_partitions(call: Call) -> Response:
    """GET topics/TOPIC/partitions."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    data = (_partition(topic.name, partition, links) for partition in topic.partitions)
    return links.collection(_PARTITION, links.url("topics", topic.name, "partitions"), data)


async def get_partition(call: Call) -> Response:
    """GET topics/TOPIC/partitions/PARTITION."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    return json_response(_partition(topic.name, partition_of(call, topic), links))


async def get_offsets(call: Call) -> Response:
    """GET topics/TOPIC/partitions/PARTITION/offset: its first offset, and the offset after its last record."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    number = partition_of(call, topic).partition
    tp = TopicPartition(topic.name, number)
    admin = call.clients.admin
    first = (await admin.list_offsets({tp: OffsetSpec.EARLIEST}))[tp]
    end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp]
    fields = {
        "topic_name": topic.name,
        "partition_id": number,
        "earliest_offset": first.offset,
        "latest_offset": end.offset,
    }
    url = links.url("topics", topic.name, "partitions", number, "offset")
    name = links.name("topic", topic.name, "partition", number, "offset")
    return json_response(links.resource(_OFFSETS, url, name, fields))


async def list_replicas(call: Call) -> Response:
    """GET topics/TOPIC/partitions/PARTITION/replicas."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    partition = partition_of(call, topic)
    url = links.url("topics", topic.name, "partitions", partition.partition, "replicas")
    data = (replica(links, topic.name, partition, broker) for broker in partition.replicas)
    return links.collection(_REPLICA, url, data)


async def get_replica(call: Call) -> Response:
    """GET topics/TOPIC/partitions/PARTITION/replicas/BROKER."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    partition = partition_of(call, topic)
    broker = integer(call.path("broker"), "Replica")
    if broker not in partition.replicas:
        raise not_found(f"Replica {broker} of {topic.name}-{partition.partition} cannot be found.")
    return json_response(replica(links, topic.name, partition, broker))


async def list_reassignments(call: Call) -> Response:
    """GET topics/-/partitions/-/reassignment: all partitions that are moving, or only of TOPIC."""
    _, links = await cluster_of(call)
    name = call.path("topic") if "topic" in call.request.path_params else None
    if name is not None:
        await topic_of(call)
    moving = await call.clients.admin.list_partition_reassignments()
    data = (_reassignment(tp, moving[tp], links) for tp in sorted(moving) if name in (None, tp.topic))
    url = links.url("topics", name or "-", "partitions", "-", "reassignment")
    return links.collection(_REASSIGNMENT, url, data)


async def get_reassignment(call: Call) -> Response:
    """GET topics/TOPIC/partitions/PARTITION/reassignment; 404 if the partition is not moving."""
    _, links = await cluster_of(call)
    topic = await topic_of(call)
    tp = TopicPartition(topic.name, partition_of(call, topic).partition)
    moving = await call.clients.admin.list_partition_reassignments()
    if tp not in moving:
        raise not_found(f"{tp.topic}-{tp.partition} has no reassignment.")
    return json_response(_reassignment(tp, moving[tp], links))


async def topic_of(call: Call) -> TopicDescription:
    """Return the topic in the path. Raises HttpError."""
    try:
        return await call.clients.admin.describe_topic(call.path("topic"))
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise not_hosted() from error


def partition_of(call: Call, topic: TopicDescription) -> PartitionDescription:
    """Return the partition in the path. Raises HttpError."""
    number = integer(call.path("partition"), "Partition")
    for partition in topic.partitions:
        if partition.partition == number:
            return partition
    raise not_found(f"Partition {number} of {topic.name} cannot be found.")


def _assignments(given: Mapping[str, Any]) -> dict[int, list[int]]:
    """Return the node ids of each partition. Raises HttpError."""
    found = {}
    for partition, brokers in given.items():
        is_list = isinstance(brokers, list) and all(type(broker) is int for broker in brokers)
        if not (partition.isascii() and partition.isdecimal()) or not is_list:
            raise bad_request('replicas_assignments must be an object such as {"0": [1, 2]}.')
        found[int(partition)] = list(brokers)
    return found


def _configs(given: list[Any]) -> dict[str, object]:
    """Return the settings of a new topic; without a value the default stays. Raises HttpError."""
    found: dict[str, object] = {}
    for entry in given:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise bad_request('configs must be an array of objects such as {"name": ..., "value": ...}.')
        if entry.get("value") is not None:
            found[entry["name"]] = checked(entry, "value", str)
    return found


def _topic(topic: TopicDescription, links: Links) -> dict[str, Any]:
    fields = {
        "topic_name": topic.name,
        "is_internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "partitions_count": len(topic.partitions),
        "partitions": links.related("topics", topic.name, "partitions"),
        "configs": links.related("topics", topic.name, "configs"),
        "partition_reassignments": links.related("topics", topic.name, "partitions", "-", "reassignment"),
    }
    return links.resource(_TOPIC, links.url("topics", topic.name), links.name("topic", topic.name), fields)


def _partition(topic: str, partition: PartitionDescription, links: Links) -> dict[str, Any]:
    path = ("topics", topic, "partitions", partition.partition)
    fields: dict[str, Any] = {"topic_name": topic, "partition_id": partition.partition}
    if partition.leader is not None:
        fields["leader"] = links.related(*path, "replicas", partition.leader)
    fields |= {"replicas": links.related(*path, "replicas"), "reassignment": links.related(*path, "reassignment")}
    return links.resource(
        _PARTITION, links.url(*path), links.name("topic", topic, "partition", partition.partition), fields
    )


def _reassignment(tp: TopicPartition, moving: Reassignment, links: Links) -> dict[str, Any]:
    path = ("topics", tp.topic, "partitions", tp.partition)
    fields = {
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "adding_replicas": list(moving.adding),
        "removing_replicas": list(moving.removing),
        "replicas": links.related(*path, "replicas"),
    }
    name = links.name("topic", tp.topic, "partition", tp.partition, "reassignment")
    return links.resource(_REASSIGNMENT, links.url(*path, "reassignment"), name, fields)


OPERATIONS: Final = (
    Operation("GET", _TOPICS_PATH, list_topics, "List the topics", f"{_TOPIC}List"),
    Operation("POST", _TOPICS_PATH, create_topic, "Create a topic", _TOPIC, 201, "CreateTopic"),
    Operation(
        "GET", f"{_TOPICS_PATH}/-/partitions/-/reassignment", list_reassignments,
        "List the partitions that are moving", f"{_REASSIGNMENT}List",
    ),
    Operation("GET", f"{_TOPICS_PATH}/{{topic}}", get_topic, "Get a topic", _TOPIC),
    Operation(
        "PATCH", f"{_TOPICS_PATH}/{{topic}}", grow_topic, "Raise the number of partitions", _TOPIC, 200,
        "UpdatePartitionCount",
    ),
    Operation("DELETE", f"{_TOPICS_PATH}/{{topic}}", delete_topic, "Delete a topic", None, 204),
    Operation("GET", _PARTITIONS_PATH, list_partitions, "List the partitions of a topic", f"{_PARTITION}List"),
    Operation(
        "GET", f"{_PARTITIONS_PATH}/-/reassignment", list_reassignments,
        "List the partitions of a topic that are moving", f"{_REASSIGNMENT}List",
    ),
    Operation("GET", f"{_PARTITIONS_PATH}/{{partition}}", get_partition, "Get a partition", _PARTITION),
    Operation(
        "GET", f"{_PARTITIONS_PATH}/{{partition}}/offset", get_offsets,
        "Get the first and the end offset of a partition", _OFFSETS,
    ),
    Operation(
        "GET", f"{_PARTITIONS_PATH}/{{partition}}/reassignment", get_reassignment,
        "Get the reassignment of a partition", _REASSIGNMENT,
    ),
    Operation(
        "GET", f"{_PARTITIONS_PATH}/{{partition}}/replicas", list_replicas, "List the replicas of a partition",
        f"{_REPLICA}List",
    ),
    Operation(
        "GET", f"{_PARTITIONS_PATH}/{{partition}}/replicas/{{broker}}", get_replica, "Get a replica", _REPLICA
    ),
)  # fmt: skip
