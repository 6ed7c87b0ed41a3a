"""Metadata (3), versions 0-13: brokers, topics, partitions and their leaders.

KIP-430 (authorized operations), KIP-516 (topic ids), KIP-526; endpoints belong to the listener that received the
request. A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION; if both the request and `auto.create.topics.enable`
allow it, its creation begins and a later request finds it, as in Kafka. Responses are cached as bytes until the
metadata changes. A response that would name a leader whose process just ended waits until the controller has elected
another: see `LostBrokers`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.authorization import FILTERED, allowed, allowed_names, allowed_on_cluster
from ottla.broker.operations import NOT_REQUESTED, authorized_operations, cluster_operations
from ottla.broker.response_size import check_response_size
from ottla.cluster.availability import LISTENER_ERROR_SINCE_VERSION, leadership
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import INTERNAL_TOPICS, ZERO_UUID, is_topic_name, validate_topic_name
from ottla.common.slices import Slices
from ottla.protocol.elements import Elements
from ottla.protocol.frames import Encoded
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import MetadataPorts
    from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage

AUTO_CREATION_FLAG_SINCE_VERSION = 4
TOPIC_IDS_SINCE_VERSION = 12
# The response to a longer list of topics is not cached: the same list is rarely requested twice.
MOST_TOPICS_CACHED = 100
_FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Rights(NamedTuple):
    """The topics that an authorizer hides from a client; without one the same for all clients."""

    visible: frozenset[str] | None = None
    """The topics that the client may describe; None for all."""
    uncreatable: frozenset[str] = frozenset()
    """The topics that would be created, if the client had the right."""


_ALL_RIGHTS = _Rights()


class _View(NamedTuple):
    """One client's view: the metadata, the brokers that it can reach, and its authorized operations on topics."""

    image: MetadataImage
    available: frozenset[int]
    version: int
    operations: Callable[[str], int]
    rights: _Rights

    def shows(self, name: str) -> bool:
        """Whether the client may know whether the topic exists."""
        return self.rights.visible is None or name in self.rights.visible


def handle(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest
) -> Encoded | Slices[MetadataResponse | Encoded]:
    """Describe the requested topics, or all of them, as they are before missing ones are created."""
    if len(broker.metadata.image.brokers) > 1:
        return _describe_settled(broker, context, request)
    return _describe_now(broker, context, request)


def _describe_settled(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest
) -> Slices[MetadataResponse | Encoded]:
    """Wait until the leaders of the topics are not among those that were just lost."""
    # A lost connection is reported one event loop iteration after it was noticed.
    yield broker.schedulers.worker.next_iteration()
    if broker.endpoints.lost_brokers:
        waiting = broker.endpoints.lost_brokers.settled(_leaders(broker.metadata.image, request))
        if waiting is not None:
            yield waiting
    answer = _describe_now(broker, context, request)
    return answer if isinstance(answer, Encoded) else (yield from answer)


def _leaders(image: MetadataImage, request: MetadataRequest) -> set[int] | None:
    """The leaders of the requested topics; None for many topics."""
    if request.topics is None or len(request.topics) > MOST_TOPICS_CACHED:
        return None
    by_name, by_id = image.topics_by_name, image.topics_by_id
    topics = [by_name.get(topic.name or "") or by_id.get(topic.topic_id) for topic in request.topics]
    return {partition.leader for topic in topics if topic is not None for partition in topic.partitions.values()}


def _describe_now(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest
) -> Encoded | Slices[MetadataResponse | Encoded]:
    if broker.security.authorizer is not None:
        return _describe_visible(broker, context, request)
    question = _question(broker, context, request, _ALL_RIGHTS)
    if question is not None:
        kept = broker.response_cache.get(broker.metadata.image, question)
        if kept is not None:
            return kept
    return _answer(broker, context, request, question, _ALL_RIGHTS)


def _describe_visible(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest
) -> Slices[MetadataResponse | Encoded]:
    """Describe the topics that the client may know. Clients that see the same topics share cached responses."""
    image = broker.metadata.image
    visible: set[str] = set()
    if _asks_for_all(context, request):
        for name in image.topics_by_name:
            if allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, name, FILTERED):
                visible.add(name)
            yield
    else:
        for wanted in request.topics or ():
            found = image.topics_by_id.get(wanted.topic_id) if wanted.topic_id != ZERO_UUID else None
            name = wanted.name or "" if found is None else found.name
            if allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, name):
                visible.add(name)
            yield
    rights = _Rights(frozenset(visible))
    question = _question(broker, context, request, rights)
    kept = None if question is None else broker.response_cache.get(image, question)
    return kept or (yield from _answer(broker, context, request, question, rights))


def _question(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest, rights: _Rights
) -> Hashable | None:
    """The cache key of the response; None if it must not be cached, or depends on more rights of the client."""
    if rights.visible is not None and (
        request.include_topic_authorized_operations or request.include_cluster_authorized_operations
    ):
        return None
    asked = None
    if request.topics is not None:
        if len(request.topics) > MOST_TOPICS_CACHED:
            return None
        asked = tuple([(topic.topic_id, topic.name) for topic in request.topics])
    return (
        context.api_version,
        context.listener,
        request.allow_auto_topic_creation,  # a request that creates topics must not get a cached response
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        broker.endpoints.lost_brokers.just_fenced,
        rights.visible,
        asked,
    )


def _answer(
    broker: MetadataPorts,
    context: RequestContext,
    request: MetadataRequest,
    question: Hashable | None,
    rights: _Rights,
) -> Slices[MetadataResponse | Encoded]:
    if _is_invalid(context, request):
        return (yield from _refuse(request))
    image = broker.metadata.image
    missing = yield from _to_create(broker, context, request, rights)
    if missing and not allowed_on_cluster(broker, context, Operation.CREATE, FILTERED):
        creatable = allowed_names(broker, context, Operation.CREATE, ResourceType.TOPIC, missing)
        rights = rights._replace(uncreatable=frozenset(missing) - creatable)
    response = yield from _describe(broker, context, request, rights)
    if missing:
        # Not cached: the next request has to begin the creation again if this one fails.
        names = [name for name in missing if name not in rights.uncreatable and is_topic_name(name)]
        broker.controller.auto_topic_creation.begin(names)
        return response
    if question is None:
        return response
    answer = Encoded(response, context.api_version)
    broker.response_cache.keep(image, question, answer)
    return answer


def _refuse(request: MetadataRequest) -> Slices[MetadataResponse]:
    topics = []
    for topic in request.topics or ():
        topics.append(
            MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        )
        yield
    return MetadataResponse(topics=topics)


def _is_invalid(context: RequestContext, request: MetadataRequest) -> bool:
    """Whether versions 10 and 11 request topics by id, which only version 12 supports (KAFKA-10774)."""
    return context.api_version < TOPIC_IDS_SINCE_VERSION and any(
        topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ()
    )


def _asks_for_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _to_create(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest, rights: _Rights
) -> Slices[list[str]]:
    """The visible topics that do not exist, if they should be created; also those with invalid names."""
    if request.topics is None or not broker.settings.current.bool("auto.create.topics.enable"):
        return []
    if context.api_version >= AUTO_CREATION_FLAG_SINCE_VERSION and not request.allow_auto_topic_creation:
        return []
    known = broker.metadata.image.topics_by_name
    missing: dict[str, None] = {}
    for topic in request.topics:
        yield
        if topic.topic_id != ZERO_UUID or topic.name is None or topic.name in known:
            continue
        if rights.visible is None or topic.name in rights.visible:
            missing[topic.name] = None
    return list(missing)


def _describe(
    broker: MetadataPorts, context: RequestContext, request: MetadataRequest, rights: _Rights
) -> Slices[MetadataResponse]:
    image = broker.metadata.image

    def allowed_operations(name: str) -> int:
        if not request.include_topic_authorized_operations:
            return NOT_REQUESTED
        return authorized_operations(broker, context, ResourceType.TOPIC, name)

    topics: Elements[MetadataResponseTopic] = Elements(MetadataResponse, context.api_version)
    available = frozenset(node_id for node_id, _, _, _ in broker.endpoints.available(context.listener))
    view = _View(image, available, context.api_version, allowed_operations, rights)
    if _asks_for_all(context, request):
        for topic in image.topics_by_name.values():
            if view.shows(topic.name):
                topics.append(_topic(view, topic))
            yield
    else:
        # Each topic once, however often it is requested; an id takes precedence over a name.
        asked = set()
        for wanted in request.topics or ():
            topic_id, name = key = wanted.topic_id, wanted.name
            if key in asked:
                yield
                continue
            asked.add(key)
            if topic_id != ZERO_UUID:
                topics.append(_by_id(view, topic_id))
            else:
                topics.append(_by_name(view, name or ""))
            yield
    check_response_size(topics.size)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.endpoints.listed(context.listener)
        ],
        cluster_id=broker.identity.cluster_id,
        controller_id=broker.endpoints.controller_id(view.available),
        topics=topics.as_list(),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(broker, context)
    return response


def _by_id(view: _View, topic_id: bytes) -> MetadataResponseTopic:
    topic = view.image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not view.shows(topic.name):
        return MetadataResponseTopic(error_code=_FORBIDDEN, name=None, topic_id=topic_id)
    return _topic(view, topic)


def _by_name(view: _View, name: str) -> MetadataResponseTopic:
    if not view.shows(name):
        return MetadataResponseTopic(error_code=_FORBIDDEN, name=name)
    if name in view.rights.uncreatable:
        return MetadataResponseTopic(error_code=_FORBIDDEN, name=name, is_internal=name in INTERNAL_TOPICS)
    topic = view.image.topics_by_name.get(name)
    if topic is not None:
        return _topic(view, topic)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.code
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=view.operations(name),
    )


def _topic(view: _View, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(view, index, partition) for index, partition in topic.partitions.items()],
        topic_authorized_operations=view.operations(topic.name),
    )


def _partition(view: _View, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    names_listener = view.version >= LISTENER_ERROR_SINCE_VERSION
    code, leader_id = leadership(view.image, partition, view.available, names_listener=names_listener)
    replicas, isr = list(partition.replicas), list(partition.isr)
    if view.version == 0 and not view.available.issuperset(replicas):
        # Clients of version 0 cannot receive replicas without an address.
        replicas, isr = ([each for each in ids if each in view.available] for ids in (replicas, isr))
        code = code or ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.image.offline_replicas(partition, view.available),
    )
