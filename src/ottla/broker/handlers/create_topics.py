"""CreateTopics (19), versions 2-7: one error per topic; the response is sent when the topics are durable and their
logs are open.

KIP-4, KIP-464 (defaults by -1), KIP-525 (configs in the response), KIP-599 (quotas, strict from version 6 on).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed_names, allowed_on_cluster
from ottla.cluster.controller_log import log_results
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import METADATA_TOPIC
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ControllerPorts

STRICT_SINCE_VERSION = 6


def handle(
    broker: ControllerPorts, context: RequestContext, request: CreateTopicsRequest
) -> Slices[CreateTopicsResponse]:
    """Create the topics, or with `validate_only` return the results that creating them would have."""
    answers: list[CreatableTopicResult] = []
    shown: set[str] | None = None
    if broker.security.authorizer is not None:
        answers, shown = yield from _take_forbidden(broker, context, request)
    permits = broker.security.quotas.permits(context, STRICT_SINCE_VERSION)
    try:
        created = broker.metadata.submit(lambda controller: controller.create_topics(request, permits.take))
        response = yield from result_of(created)
    except KafkaError as error:
        results: dict[str, CreatableTopicResult] = {}
        for topic in request.topics:
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            results.setdefault(topic.name, result)
            yield
        return CreateTopicsResponse(topics=[*results.values(), *answers])
    if shown is not None:
        yield from _hide_settings(response, shown)
    response.topics += answers
    response.throttle_time_ms = permits.throttle_time_ms
    log_results(
        broker.node_id,
        "CreateTopics",
        ((topic.name, topic.error_code, topic.error_message) for topic in response.topics),
    )
    return response


def _take_forbidden(
    broker: ControllerPorts, context: RequestContext, request: CreateTopicsRequest
) -> Slices[tuple[list[CreatableTopicResult], set[str]]]:
    """Remove the topics that the client may not create; returns their errors, and the topics with visible settings."""
    names: dict[str, None] = {}
    for topic in request.topics:
        names[topic.name] = None
        yield
    names.pop(METADATA_TOPIC, None)  # refused for every client
    creatable = set(names)
    if not allowed_on_cluster(broker, context, Operation.CREATE, FILTERED):
        creatable = allowed_names(broker, context, Operation.CREATE, ResourceType.TOPIC, names)
    forbidden = names.keys() - creatable
    request.topics = [topic for topic in request.topics if topic.name not in forbidden]
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answers = [
        CreatableTopicResult(name=name, error_code=error, error_message="Authorization failed.")
        for name in names
        if name in forbidden
    ]
    return answers, allowed_names(broker, context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, FILTERED)


def _hide_settings(response: CreateTopicsResponse, shown: set[str]) -> Slices[None]:
    """Omit the settings of new topics whose settings the client may not describe (KIP-525)."""
    for topic in response.topics:
        if topic.name not in shown and not topic.error_code:
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        yield
