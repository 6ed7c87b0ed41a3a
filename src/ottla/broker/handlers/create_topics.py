"""CreateTopics (19), versions 2-7: one error per topic; answered once the topics are durable and their logs are open.

KIP-4, KIP-464 (defaults by -1), KIP-525 (configs in the answer). Left out: controller mutation quotas (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Completion[CreateTopicsResponse]:
    """Create the topics, or with `validate_only` say what would happen."""

    def failed(error: KafkaError) -> CreateTopicsResponse:
        names = dict.fromkeys(topic.name for topic in request.topics)
        results = [CreatableTopicResult(name=n, error_code=error.code, error_message=error.message) for n in names]
        return CreateTopicsResponse(topics=results)

    return answer(broker.metadata.submit(lambda controller: controller.create_topics(request)), same, failed)
