"""CreateTopics (19), versions 2-7: one error per topic; the response is sent when the topics are durable and their
logs are open.

KIP-4, KIP-464 (defaults by -1), KIP-525 (configs in the response). Not implemented: controller mutation quotas
(KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cluster.controller_log import log_results
from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ControllerPorts


def handle(
    broker: ControllerPorts, context: RequestContext, request: CreateTopicsRequest
) -> Slices[CreateTopicsResponse]:
    """Create the topics, or with `validate_only` return the results that creating them would have."""
    try:
        response = yield from result_of(broker.metadata.submit(lambda controller: controller.create_topics(request)))
    except KafkaError as error:
        results: dict[str, CreatableTopicResult] = {}
        for topic in request.topics:
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            results.setdefault(topic.name, result)
            yield
        return CreateTopicsResponse(topics=list(results.values()))
    log_results(
        broker.node_id,
        "CreateTopics",
        ((topic.name, topic.error_code, topic.error_message) for topic in response.topics),
    )
    return response
