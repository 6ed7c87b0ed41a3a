"""AddPartitionsToTxn (24), versions 0-5: from clients (0-3), or from brokers for several transactions (4-5). KIP-890.

Nothing is added if one of the partitions does not exist: the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.transaction.events import AddPartitions
from ottla.protocol.elements import Elements
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AddPartitionsPorts
    from ottla.metadata.image import MetadataImage

BATCHED_SINCE = 4
# A partition takes a microsecond: a yield for each one would cost as much.
PARTITIONS_AT_ONCE = 32
_TopicResults = Elements[AddPartitionsToTxnTopicResult]


def handle(
    broker: AddPartitionsPorts, context: RequestContext, request: AddPartitionsToTxnRequest
) -> Slices[AddPartitionsToTxnResponse]:
    """Add or verify the partitions of each transaction."""
    if context.api_version < BATCHED_SINCE:
        results = yield from _handle_one(broker, context, _of_client(request))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results.as_list())
    rows: Elements[AddPartitionsToTxnResult] = Elements(AddPartitionsToTxnResponse, context.api_version)
    for transaction in request.transactions:
        results = yield from _handle_one(broker, context, transaction)
        transactional_id = transaction.transactional_id
        rows.append(AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results.as_list()))
        yield
    return AddPartitionsToTxnResponse(results_by_transaction=rows.as_list())


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _handle_one(
    broker: AddPartitionsPorts, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Slices[_TopicResults]:
    errors: Mapping[tuple[str, int], ErrorCode] = yield from _missing(broker.metadata.image, transaction.topics)
    if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION not in errors.values():
        request = AddPartitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            tuple(errors),
            transaction.verify_only,
            2 if context.api_version >= BATCHED_SINCE else 0,
        )
        errors = yield from result_of(broker.transactions.add(request, context.api_version))
    rows: _TopicResults = Elements(AddPartitionsToTxnResponse, context.api_version)
    for name, partitions in groupby(errors.items(), lambda row: row[0][0]):
        results: Elements[AddPartitionsToTxnPartitionResult] = Elements(AddPartitionsToTxnResponse, context.api_version)
        for number, ((_, index), error) in enumerate(partitions, 1):
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            if not number % PARTITIONS_AT_ONCE:
                yield
        rows.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=results.as_list()))
        yield
    return rows


def _missing(image: MetadataImage, topics: list[AddPartitionsToTxnTopic]) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """Return UNKNOWN_TOPIC_OR_PARTITION for each missing partition, and OPERATION_NOT_ATTEMPTED for the others."""
    errors = {}
    for topic in topics:
        found = image.topics_by_name.get(topic.name)
        known = found.partitions if found is not None else {}
        for number, index in enumerate(topic.partitions, 1):
            exists = index in known
            error = ErrorCode.OPERATION_NOT_ATTEMPTED if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[topic.name, index] = error
            if not number % PARTITIONS_AT_ONCE:
                yield
        yield
    return errors
