"""DeleteTopics (20), versions 1-6: by name, from version 6 on by name or id. KIP-516.

KIP-599 (quotas, strict from version 5 on). Rejected if `delete.topic.enable=false`.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed, allowed_on_cluster
from ottla.broker.authorization_table import MESSAGES
from ottla.cluster.controller_log import log_results
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid, uuid_to_text
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ControllerPorts

STRICT_SINCE_VERSION = 5


def handle(
    broker: ControllerPorts, context: RequestContext, request: DeleteTopicsRequest
) -> Slices[DeleteTopicsResponse]:
    """Delete the topics; their files are deleted after the log's delay."""
    version = context.api_version
    answers: list[DeletableTopicResult] = []
    if broker.security.authorizer is not None:
        answers = yield from _take_forbidden(broker, context, request)
    permits = broker.security.quotas.permits(context, STRICT_SINCE_VERSION)
    try:
        deleted = broker.metadata.submit(lambda controller: controller.delete_topics(request, version, permits.take))
        response = yield from result_of(deleted)
    except KafkaError as error:
        asked = chain(
            ((name, ZERO_UUID) for name in request.topic_names),
            ((topic.name, topic.topic_id) for topic in request.topics),
        )
        refused = []
        for name, topic_id in asked:
            refused.append(
                DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            )
            yield
        return DeleteTopicsResponse(responses=refused + answers)
    response.responses += answers
    response.throttle_time_ms = permits.throttle_time_ms
    results = (
        (topic.name or uuid_to_text(topic.topic_id), topic.error_code, topic.error_message)
        for topic in response.responses
    )
    log_results(broker.node_id, "DeleteTopics", results)
    return response


def _take_forbidden(
    broker: ControllerPorts, context: RequestContext, request: DeleteTopicsRequest
) -> Slices[list[DeletableTopicResult]]:
    """Remove the topics that the client may not delete; returns their errors.

    Without DESCRIBE the response neither shows the name that belongs to an id, nor whether a named topic exists. An id
    that this image does not have yet is unknown: the name, by which the client is authorized, is not known.
    """
    if allowed_on_cluster(broker, context, Operation.DELETE, FILTERED):
        return []
    asked: dict[tuple[str | None, Uuid], None] = {}
    for name in request.topic_names:
        asked[name, ZERO_UUID] = None
    for topic in request.topics:
        asked[topic.name, topic.topic_id] = None
        yield
    answers: dict[tuple[str | None, Uuid], DeletableTopicResult] = {}
    for key in asked:
        answer = _forbidden(broker, context, *key)
        if answer is not None:
            answers[key] = answer
        yield
    request.topic_names = [name for name in request.topic_names if (name, ZERO_UUID) not in answers]
    request.topics = [topic for topic in request.topics if (topic.name, topic.topic_id) not in answers]
    return list(answers.values())


def _forbidden(
    broker: ControllerPorts, context: RequestContext, name: str | None, topic_id: Uuid
) -> DeletableTopicResult | None:
    """The error of a topic that must not be deleted; None for one that may be, and for an invalid entry."""
    if (name is None) == (topic_id == ZERO_UUID):
        return None
    image = broker.metadata.image
    if name is None:
        found = image.topics_by_id.get(topic_id)
        if found is None:
            return _refused(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    known = found.name if name is None and found is not None else name or ""
    is_visible = allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, known)
    if allowed(broker, context, Operation.DELETE, ResourceType.TOPIC, known) and is_visible:
        return None
    if name is not None and is_visible and name not in image.topics_by_name:
        return _refused(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _refused(known if is_visible else name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refused(name: str | None, topic_id: Uuid, error: ErrorCode) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error, error_message=MESSAGES.get(error, error.text)
    )
