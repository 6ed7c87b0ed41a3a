"""DescribeTopicPartitions (75), version 0: topics page by page, with eligible leader replicas. KIP-966."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker import operations
from ottla.broker.authorization import allowed
from ottla.cluster.availability import leadership
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS, validate_topic_name
from ottla.common.slices import Slices, sort_in_slices
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import DescribeTopicPartitionsPorts
    from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage

LIMIT_SETTING = "max.request.partition.size.limit"


def handle(
    broker: DescribeTopicPartitionsPorts, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Slices[DescribeTopicPartitionsResponse]:
    """Describe topics in the order of their names, from the cursor on, up to the limit of partitions."""
    if _is_invalid(request):
        code = ErrorCode.INVALID_REQUEST
        return _page([_failed(topic.name, code, operations.NOT_REQUESTED) for topic in request.topics], None)
    image = broker.metadata.image
    available = frozenset(node_id for node_id, _, _, _ in broker.endpoints.available(context.listener))
    fetch_all = not request.topics
    asked: Collection[str] = image.topics_by_name if fetch_all else {topic.name: None for topic in request.topics}
    first_index = 0
    if request.cursor is not None:
        asked = [name for name in asked if name >= request.cursor.topic_name]
        if request.cursor.topic_name in asked:  # otherwise the topic was deleted: continue with the next one
            first_index = request.cursor.partition_index
    names = yield from sort_in_slices(asked)
    left = max(1, min(request.response_partition_limit, broker.settings.current.int(LIMIT_SETTING)))
    topics = []
    hidden: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield
        if not allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if not fetch_all:
                hidden.append(_hidden(name))
            continue
        allowed_operations = operations.authorized_operations(broker, context, ResourceType.TOPIC, name)
        topic = image.topics_by_name.get(name)
        if topic is None:
            topics.append(_unknown(name, allowed_operations))
            continue
        if left == 0:
            return _page(topics + hidden, ResponseCursor(topic_name=name, partition_index=first_index))
        indexes = [index for index in topic.partitions if index >= first_index]
        first_index = 0
        described = _topic(image, available, topic, indexes[:left])
        described.topic_authorized_operations = allowed_operations
        topics.append(described)
        if len(indexes) > left:
            return _page(topics + hidden, ResponseCursor(topic_name=name, partition_index=indexes[left]))
        left -= len(indexes)
    return _page(topics + hidden, None)


def _hidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _is_invalid(request: DescribeTopicPartitionsRequest) -> bool:
    """Whether the cursor names an impossible partition, or a topic that was not requested."""
    cursor = request.cursor
    if cursor is None:
        return False
    asked = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return cursor.partition_index < 0 or not asked


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: ResponseCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _unknown(name: str, allowed: int) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.code
    return _failed(name, code, allowed)


def _failed(name: str, code: ErrorCode, allowed: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=allowed,
    )


def _topic(
    image: MetadataImage, available: frozenset[int], topic: TopicImage, indexes: list[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, available, index, topic.partitions[index]) for index in indexes],
    )


def _partition(
    image: MetadataImage, available: frozenset[int], index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    code, leader_id = leadership(image, partition, available)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=image.offline_replicas(partition, available),
    )
