"""ReadShareGroupStateSummary (87), versions 0-1: where share partitions start. KIP-932, KIP-1226."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.share_state_requests import ask_each, error_fields
from ottla.common.slices import Slices
from ottla.coordinators.share.events import ReadSummary, ShareKey
from ottla.protocol.elements import Elements
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasShares


def handle(
    broker: HasShares, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> Slices[ReadShareGroupStateSummaryResponse]:
    """Read the summary of each share partition. One without state has the start offset -1."""
    found = yield from ask_each(broker.shares.submit, request.group_id, request.topics, _question)
    results = []
    for topic_id, partitions in found.items():
        rows: Elements[PartitionResult] = Elements(ReadShareGroupStateSummaryResponse, context.api_version)
        for index, result in partitions.items():
            row = PartitionResult(partition=index, **error_fields(result, "read share group state summary"))
            row.state_epoch, row.leader_epoch = result.state_epoch, result.leader_epoch
            row.start_offset = result.start_offset
            row.delivery_complete_count = result.delivery_complete_count
            rows.append(row)
            yield
        results.append(ReadStateSummaryResult(topic_id=topic_id, partitions=rows.as_list()))
    return ReadShareGroupStateSummaryResponse(results=results)


def _question(key: ShareKey, _row: PartitionData) -> ReadSummary:
    return ReadSummary(key)
