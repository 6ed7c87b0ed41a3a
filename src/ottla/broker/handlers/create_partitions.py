"""CreatePartitions (37), versions 0-3: add partitions to topics. KIP-195, KIP-599 (quotas, strict since version 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AdminPorts

STRICT_SINCE_VERSION = 3


def handle(
    broker: AdminPorts, context: RequestContext, request: CreatePartitionsRequest
) -> Slices[CreatePartitionsResponse]:
    """Add the partitions; respond when they are durable and their logs are open."""
    answers: list[CreatePartitionsTopicResult] = []
    if broker.security.authorizer is not None:
        answers = yield from _take_forbidden(broker, context, request)
    permits = broker.security.quotas.permits(context, STRICT_SINCE_VERSION)
    try:
        response: CreatePartitionsResponse = yield from result_of(
            broker.metadata.submit(lambda controller: controller.create_partitions(request, permits.take))
        )
    except KafkaError as error:
        results = []
        for topic in request.topics:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
            yield
        return CreatePartitionsResponse(results=results + answers)
    response.throttle_time_ms = permits.throttle_time_ms
    response.results += answers
    return response


def _take_forbidden(
    broker: AdminPorts, context: RequestContext, request: CreatePartitionsRequest
) -> Slices[list[CreatePartitionsTopicResult]]:
    """Remove the topics that the client may not alter; returns their errors."""
    allowed_topics, answers = [], {}
    for topic in request.topics:
        if allowed(broker, context, Operation.ALTER, ResourceType.TOPIC, topic.name):
            allowed_topics.append(topic)
        else:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answers[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=None)
        yield
    request.topics = allowed_topics
    return list(answers.values())
