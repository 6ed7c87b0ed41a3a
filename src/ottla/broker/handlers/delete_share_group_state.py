"""DeleteShareGroupState (86), version 0: delete the state of share partitions. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.share_state_requests import ask_each, error_fields
from ottla.common.slices import Slices
from ottla.coordinators.share.events import DeleteState, ShareKey
from ottla.protocol.elements import Elements
from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasShares


def handle(
    broker: HasShares, context: RequestContext, request: DeleteShareGroupStateRequest
) -> Slices[DeleteShareGroupStateResponse]:
    """Delete the state of each share partition; one without state is not an error."""
    found = yield from ask_each(broker.shares.submit, request.group_id, request.topics, _question)
    results = []
    for topic_id, partitions in found.items():
        rows: Elements[PartitionResult] = Elements(DeleteShareGroupStateResponse, context.api_version)
        for index, result in partitions.items():
            rows.append(PartitionResult(partition=index, **error_fields(result, "delete share group state")))
            yield
        results.append(DeleteStateResult(topic_id=topic_id, partitions=rows.as_list()))
    return DeleteShareGroupStateResponse(results=results)


def _question(key: ShareKey, _row: PartitionData) -> DeleteState:
    return DeleteState(key)
