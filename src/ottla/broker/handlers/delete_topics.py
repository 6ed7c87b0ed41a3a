"""DeleteTopics (20), versions 1-6: by name, from version 6 on by name or id. KIP-516.

Rejected if `delete.topic.enable=false`. Not implemented: controller mutation quotas (KIP-599).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.cluster.controller_log import log_results
from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID, uuid_to_text
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ControllerPorts


def handle(
    broker: ControllerPorts, context: RequestContext, request: DeleteTopicsRequest
) -> Slices[DeleteTopicsResponse]:
    """Delete the topics; their files are deleted after the log's delay."""
    version = context.api_version
    try:
        deleted = broker.metadata.submit(lambda controller: controller.delete_topics(request, version))
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
        return DeleteTopicsResponse(responses=refused)
    results = (
        (topic.name or uuid_to_text(topic.topic_id), topic.error_code, topic.error_message)
        for topic in response.responses
    )
    log_results(broker.node_id, "DeleteTopics", results)
    return response
