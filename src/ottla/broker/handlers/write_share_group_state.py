"""WriteShareGroupState (85), versions 0-1: merge the states of records into the state of share partitions.

KIP-932, KIP-1226. Unlike Kafka, it refuses batches whose form is invalid, which would prevent the leader from loading
the share partition, and more batches for one partition than its shard merges in one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.share_state_requests import ask_each, error_fields
from ottla.common.slices import Slices
from ottla.coordinators.share.events import ShareKey, WriteState
from ottla.coordinators.share.shard import MOST_BATCHES_IN_WRITE
from ottla.coordinators.share.state_batches import StateBatch
from ottla.protocol.elements import Elements
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasShares


def handle(
    broker: HasShares, context: RequestContext, request: WriteShareGroupStateRequest
) -> Slices[WriteShareGroupStateResponse]:
    """Write the state of each share partition."""
    found = yield from ask_each(broker.shares.submit, request.group_id, request.topics, _question)
    results = []
    for topic_id, partitions in found.items():
        rows: Elements[PartitionResult] = Elements(WriteShareGroupStateResponse, context.api_version)
        for index, result in partitions.items():
            rows.append(PartitionResult(partition=index, **error_fields(result, "write share group state")))
            yield
        results.append(WriteStateResult(topic_id=topic_id, partitions=rows.as_list()))
    return WriteShareGroupStateResponse(results=results)


def _question(key: ShareKey, row: PartitionData) -> WriteState:
    # One more than the shard accepts is enough for it to refuse the write.
    batches = tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in row.state_batches[: MOST_BATCHES_IN_WRITE + 1]
    )
    return WriteState(key, row.state_epoch, row.leader_epoch, row.start_offset, row.delivery_complete_count, batches)
