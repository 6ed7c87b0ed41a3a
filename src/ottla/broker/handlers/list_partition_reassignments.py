"""ListPartitionReassignments (46), version 0: the reassignments in progress. KIP-455."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Completion[ListPartitionReassignmentsResponse]:
    """List the reassignments of the named partitions, or all, after earlier operations are committed."""

    def failed(error: KafkaError) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

    return broker.metadata.submit(lambda controller: controller.list_partition_reassignments(request)).otherwise(failed)
