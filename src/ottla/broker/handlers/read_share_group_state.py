"""ReadShareGroupState (84), version 0: the state of share partitions, for their leaders. KIP-932.

The leader epoch of a read fences earlier leaders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.share_state_requests import ask_each, error_fields
from ottla.common.slices import Slices
from ottla.coordinators.share.events import ReadState, ShareKey
from ottla.protocol.elements import Elements
from ottla.protocol.messages import read_share_group_state as messages
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasShares
    from ottla.coordinators.share.state_batches import StateBatch

BATCHES_IN_SLICE = 500


def handle(
    broker: HasShares, context: RequestContext, request: ReadShareGroupStateRequest
) -> Slices[ReadShareGroupStateResponse]:
    """Read the state of each share partition."""
    found = yield from ask_each(broker.shares.submit, request.group_id, request.topics, _question)
    results = []
    for topic_id, partitions in found.items():
        rows: Elements[PartitionResult] = Elements(ReadShareGroupStateResponse, context.api_version)
        for index, result in partitions.items():
            row = PartitionResult(partition=index, **error_fields(result, "read share group state"))
            row.state_epoch, row.start_offset = result.state_epoch, result.start_offset
            row.state_batches = yield from _encoded(result.batches, context.api_version)
            rows.append(row)
            yield
        results.append(ReadStateResult(topic_id=topic_id, partitions=rows.as_list()))
    return ReadShareGroupStateResponse(results=results)


def _question(key: ShareKey, row: PartitionData) -> ReadState:
    return ReadState(key, row.leader_epoch)


def _encoded(batches: Sequence[StateBatch], version: int) -> Slices[list[messages.StateBatch]]:
    rows: Elements[messages.StateBatch] = Elements(ReadShareGroupStateResponse, version)
    for number, batch in enumerate(batches, start=1):
        rows.append(messages.StateBatch(*batch))
        if not number % BATCHES_IN_SLICE:
            yield
    return rows.as_list()
