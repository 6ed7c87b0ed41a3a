"""AddOffsetsToTxn (25), versions 0-4: add the partition that holds a group's offsets to a transaction. KIP-98."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC
from ottla.common.slices import Slices, result_of
from ottla.coordination.internal_topic import partition_of
from ottla.coordinators.transaction.events import AddPartitions
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import GroupTransactionPorts


def handle(
    broker: GroupTransactionPorts, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Slices[AddOffsetsToTxnResponse]:
    """Create `__consumer_offsets` if it does not exist, then add the group's partition."""
    if not request.transactional_id:  # which has no coordinator
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    topic = broker.groups.shards.topic
    try:
        yield from result_of(topic.ensure())
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    partition = OFFSETS_TOPIC, partition_of(request.group_id, topic.partition_count())
    add = AddPartitions(request.transactional_id, request.producer_id, request.producer_epoch, (partition,))
    added: Mapping[tuple[str, int], ErrorCode] = yield from result_of(broker.transactions.add(add, context.api_version))
    return AddOffsetsToTxnResponse(error_code=added[partition])
