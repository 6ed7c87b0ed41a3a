"""DeleteTopics (20), versions 1-6: by name, from version 6 on by name or id. KIP-516.

`delete.topic.enable=false` refuses. Left out: controller mutation quotas (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Completion[DeleteTopicsResponse]:
    """Delete the topics; their files go once the log's delay has passed."""

    def failed(error: KafkaError) -> DeleteTopicsResponse:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
        results = [
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in [*asked, *((topic.name, topic.topic_id) for topic in request.topics)]
        ]
        return DeleteTopicsResponse(responses=results)

    return answer(
        broker.metadata.submit(lambda controller: controller.delete_topics(request, context.api_version)), same, failed
    )
