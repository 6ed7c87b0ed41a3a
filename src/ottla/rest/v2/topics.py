"""GET /topics, /topics/TOPIC, its partitions and their offsets; GET /brokers."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ottla.clients.admin.model import (
    ConfigResource,
    OffsetSpec,
    PartitionDescription,
    ResourceType,
    TopicDescription,
)
from ottla.clients.errors import InvalidTopic, UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.rest.calls import Call, json_response
from ottla.rest.errors import partition_not_found, topic_not_found
from ottla.rest.v2.media_types import answer_type


async def root(call: Call) -> Response:
    """GET /: an empty object, for checks of health."""
    return json_response({}, media_type=answer_type(call.request))


async def list_topics(call: Call) -> Response:
    """GET /topics: the names of the topics that the user may see."""
    media_type = answer_type(call.request)
    topics = await call.clients.admin.list_topics()
    return json_response([topic.name for topic in topics], media_type=media_type)


async def get_topic(call: Call) -> Response:
    """GET /topics/TOPIC: its settings and partitions."""
    media_type = answer_type(call.request)
    topic = await describe(call)
    resource = ConfigResource(ResourceType.TOPIC, topic.name)
    config = await call.clients.admin.describe_config(resource)
    body = {
        "name": topic.name,
        "configs": {name: entry.value for name, entry in config.items()},
        "partitions": [_partition(partition) for partition in topic.partitions],
    }
    return json_response(body, media_type=media_type)


async def list_partitions(call: Call) -> Response:
    """GET /topics/TOPIC/partitions."""
    media_type = answer_type(call.request)
    topic = await describe(call)
    return json_response([_partition(partition) for partition in topic.partitions], media_type=media_type)


async def get_partition(call: Call) -> Response:
    """GET /topics/TOPIC/partitions/PARTITION."""
    media_type = answer_type(call.request)
    return json_response(_partition(await describe_partition(call)), media_type=media_type)


async def get_offsets(call: Call) -> Response:
    """GET /topics/TOPIC/partitions/PARTITION/offsets: the first offset, and the offset after the last record."""
    media_type = answer_type(call.request)
    partition = await describe_partition(call)
    tp = TopicPartition(call.path("topic"), partition.partition)
    admin = call.clients.admin
    first = (await admin.list_offsets({tp: OffsetSpec.EARLIEST}))[tp]
    end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp]
    return json_response({"beginning_offset": first.offset, "end_offset": end.offset}, media_type=media_type)


async def list_brokers(call: Call) -> Response:
    """GET /brokers: the ids of the brokers."""
    media_type = answer_type(call.request)
    cluster = await call.clients.admin.describe_cluster()
    return json_response({"brokers": [broker.node_id for broker in cluster.brokers]}, media_type=media_type)


async def describe(call: Call) -> TopicDescription:
    """Return the topic in the path. Raises HttpError."""
    try:
        return await call.clients.admin.describe_topic(call.path("topic"))
    except (UnknownTopicOrPartition, InvalidTopic) as error:
        raise topic_not_found() from error


async def describe_partition(call: Call) -> PartitionDescription:
    """Return the partition in the path. Raises HttpError."""
    number = call.path("partition")
    topic = await describe(call)
    for partition in topic.partitions:
        if str(partition.partition) == number:
            return partition
    raise partition_not_found()


def _partition(partition: PartitionDescription) -> dict[str, Any]:
    leader = partition.leader
    in_sync = set(partition.isr)
    return {
        "partition": partition.partition,
        "leader": leader,
        "replicas": [
            {"broker": broker, "leader": broker == leader, "in_sync": broker in in_sync}
            for broker in partition.replicas
        ],
    }
