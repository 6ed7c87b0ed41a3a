"""CreatePartitions (37), versions 0-3: add partitions to topics. KIP-195.

Not implemented: controller mutation quotas (KIP-599).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.errors import KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: CreatePartitionsRequest
) -> Slices[CreatePartitionsResponse]:
    """Add the partitions; respond when they are durable and their logs are open."""
    try:
        return (yield from result_of(broker.metadata.submit(lambda controller: controller.create_partitions(request))))
    except KafkaError as error:
        results = []
        for topic in request.topics:
            results.append(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            )
            yield
        return CreatePartitionsResponse(results=results)
