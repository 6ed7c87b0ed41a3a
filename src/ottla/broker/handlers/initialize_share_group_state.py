"""InitializeShareGroupState (83), version 0: begin to store the state of share partitions, or reset it. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.share_state_requests import ask_each, error_fields
from ottla.common.slices import Slices
from ottla.coordinators.share.events import InitializeState, ShareKey
from ottla.protocol.elements import Elements
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasShares


def handle(
    broker: HasShares, context: RequestContext, request: InitializeShareGroupStateRequest
) -> Slices[InitializeShareGroupStateResponse]:
    """Initialize each share partition."""
    found = yield from ask_each(broker.shares.submit, request.group_id, request.topics, _question)
    results = []
    for topic_id, partitions in found.items():
        rows: Elements[PartitionResult] = Elements(InitializeShareGroupStateResponse, context.api_version)
        for index, result in partitions.items():
            rows.append(PartitionResult(partition=index, **error_fields(result, "initialize share group state")))
            yield
        results.append(InitializeStateResult(topic_id=topic_id, partitions=rows.as_list()))
    return InitializeShareGroupStateResponse(results=results)


def _question(key: ShareKey, row: PartitionData) -> InitializeState:
    return InitializeState(key, row.state_epoch, row.start_offset)
