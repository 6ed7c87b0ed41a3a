"""CreatePartitions (37), versions 0-3: grow topics. KIP-195. Left out: controller mutation quotas (KIP-599)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> Completion[CreatePartitionsResponse]:
    """Add the partitions; answered once they are durable and their logs are open."""

    def failed(error: KafkaError) -> CreatePartitionsResponse:
        results = [
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
        return CreatePartitionsResponse(results=results)

    return answer(broker.metadata.submit(lambda controller: controller.create_partitions(request)), same, failed)
