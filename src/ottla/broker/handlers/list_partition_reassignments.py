"""ListPartitionReassignments (46), version 0: the moves under way. KIP-455."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import answer, same
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Completion[ListPartitionReassignmentsResponse]:
    """List moves of the named partitions, or all; answered once what was decided before is committed."""

    def failed(error: KafkaError) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

    return answer(
        broker.metadata.submit(lambda controller: controller.list_partition_reassignments(request)), same, failed
    )
