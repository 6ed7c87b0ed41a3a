"""AlterPartitionReassignments (45), versions 0-1: move partitions. KIP-455, KIP-860.

With one broker the only valid target is the current one, so that a valid request changes nothing. Other brokers are
rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasMetadata


def handle(
    broker: HasMetadata, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Completion[AlterPartitionReassignmentsResponse]:
    """Begin or cancel reassignments; each partition has its own error."""

    def failed(error: KafkaError) -> AlterPartitionReassignmentsResponse:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)

    return broker.metadata.submit(lambda controller: controller.alter_partition_reassignments(request)).otherwise(
        failed
    )
