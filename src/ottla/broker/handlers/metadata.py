"""Metadata (3), versions 0-13: brokers, topics, partitions and their leaders.

KIP-430 (authorized operations), KIP-516 (topic ids), KIP-526; endpoints are those of the listener that the request
came in on. Topics that do not exist are created if both the request and `auto.create.topics.enable` say so, and
answered once they are there. Answers are kept in bytes until the metadata changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker import operations
from ottla.broker.answers import answer
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS, ZERO_UUID, validate_topic_name
from ottla.protocol.frames import Encoded
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.metadata.image import MetadataImage, TopicImage

AUTO_CREATION_FLAG_SINCE_VERSION = 4
TOPIC_IDS_SINCE_VERSION = 12
# The answer to a longer list of topics is not kept: nobody asks for the same one twice.
MOST_TOPICS_KEPT = 100


def handle(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Encoded | Completion[MetadataResponse]:
    """Describe the asked topics, or all of them."""
    if _is_invalid(context, request):
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
                )
                for topic in request.topics or ()
            ]
        )
    missing = _to_create(broker, context, request)
    if not missing:
        return _describe_once(broker, context, request)

    def created(failures: dict[str, KafkaError]) -> MetadataResponse:
        return _describe(broker, context, request, failures)

    def failed(error: KafkaError) -> MetadataResponse:
        return _describe(broker, context, request, dict.fromkeys(missing, error))

    return answer(broker.auto_create_topics(missing), created, failed)


def _is_invalid(context: RequestContext, request: MetadataRequest) -> bool:
    """Versions 10 and 11 can express what is only understood from version 12 on (KAFKA-10774)."""
    return context.api_version < TOPIC_IDS_SINCE_VERSION and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()
    )


def _asks_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _to_create(broker: Broker, context: RequestContext, request: MetadataRequest) -> list[str]:
    if request.topics is None or not broker.config.bool("auto.create.topics.enable"):
        return []
    if context.api_version >= AUTO_CREATION_FLAG_SINCE_VERSION and not request.allow_auto_topic_creation:
        return []
    known = broker.metadata.image.topics_by_name
    missing: dict[str, None] = {}
    for topic in request.topics:
        if topic.topic_id == ZERO_UUID and topic.name is not None and topic.name not in known:
            try:
                validate_topic_name(topic.name)
            except KafkaError:
                continue  # answered as an invalid name below
            missing[topic.name] = None
    return list(missing)


def _describe_once(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse | Encoded:
    image = broker.metadata.image
    if request.topics is None:
        asked = None
    elif len(request.topics) <= MOST_TOPICS_KEPT:
        asked = tuple([(topic.topic_id, topic.name) for topic in request.topics])
    else:
        return _describe(broker, context, request, {})
    question = (
        context.api_version,
        context.listener,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        asked,
    )
    answer = broker.kept_answers.get(image, question)
    if answer is None:
        answer = Encoded(_describe(broker, context, request, {}), context.api_version)
        broker.kept_answers.keep(image, question, answer)
    return answer


def _describe(
    broker: Broker, context: RequestContext, request: MetadataRequest, failures: dict[str, KafkaError]
) -> MetadataResponse:
    image = broker.metadata.image
    allowed = operations.TOPIC_OPERATIONS if request.include_topic_authorized_operations else operations.NOT_REQUESTED
    if _asks_for_all(context, request):
        topics = [_topic(image, topic, allowed) for topic in image.topics_by_name.values()]
    else:
        # Each once, however often it is asked for; an id goes before a name.
        asked = dict.fromkeys((topic.topic_id, topic.name) for topic in request.topics or ())
        topics = [
            _by_id(image, topic_id, allowed)
            if topic_id != ZERO_UUID
            else _by_name(image, name or "", failures, allowed)
            for topic_id, name in asked
        ]
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.endpoints(context.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations.CLUSTER_OPERATIONS
    return response


def _by_id(image: MetadataImage, topic_id: bytes, allowed: int) -> MetadataResponseTopic:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(image, topic, allowed)


def _by_name(image: MetadataImage, name: str, failures: dict[str, KafkaError], allowed: int) -> MetadataResponseTopic:
    topic = image.topics_by_name.get(name)
    if topic is not None:
        return _topic(image, topic, allowed)
    code = failures[name].code if name in failures else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.code
    # One may do all of it to a topic that is not there, too.
    return MetadataResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=allowed
    )


def _topic(image: MetadataImage, topic: TopicImage, allowed: int) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=image.offline_replicas(partition),
        )
        for index, partition in topic.partitions.items()
    ]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=allowed,
    )
