"""AddPartitionsToTxn (24), versions 0-5: from clients (0-3), or from brokers for several transactions (4-5). KIP-890.

Nothing is added if one of the partitions does not exist: the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.errors import ErrorCode
from ottla.common.ids import INTERNAL_TOPICS
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
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import AddPartitionsPorts

BATCHED_SINCE = 4
# A partition takes a microsecond: a yield for each one would cost as much.
PARTITIONS_AT_ONCE = 32
# With one of these errors, no partition is added.
_FAILED = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
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
    is_client = context.api_version < BATCHED_SINCE
    name = transaction.transactional_id
    if is_client and not allowed(broker, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        refused = yield from _same_error(transaction.topics, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return (yield from _rows(refused, context.api_version))
    errors: Mapping[tuple[str, int], ErrorCode]
    errors = yield from _missing(broker, context, transaction.topics)
    if _FAILED.isdisjoint(errors.values()):
        request = AddPartitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            tuple(errors),
            transaction.verify_only,
            2 if context.api_version >= BATCHED_SINCE else 0,
        )
        errors = yield from result_of(broker.transactions.add(request, context.api_version))
    return (yield from _rows(errors, context.api_version))


def _rows(errors: Mapping[tuple[str, int], ErrorCode], version: int) -> Slices[_TopicResults]:
    rows: _TopicResults = Elements(AddPartitionsToTxnResponse, version)
    for name, partitions in groupby(errors.items(), lambda row: row[0][0]):
        results: Elements[AddPartitionsToTxnPartitionResult] = Elements(AddPartitionsToTxnResponse, version)
        for number, ((_, index), error) in enumerate(partitions, 1):
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            if not number % PARTITIONS_AT_ONCE:
                yield
        rows.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=results.as_list()))
        yield
    return rows


def _missing(
    broker: AddPartitionsPorts, context: RequestContext, topics: list[AddPartitionsToTxnTopic]
) -> Slices[dict[tuple[str, int], ErrorCode]]:
    """The error of each partition that is missing or that the client may not write, or OPERATION_NOT_ATTEMPTED.

    As in Kafka, clients may not write internal topics, and brokers have verified the rights of their clients.
    """
    image, is_client = broker.metadata.image, context.api_version < BATCHED_SINCE
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in topics:
        if is_client and not (
            topic.name not in INTERNAL_TOPICS
            and allowed(broker, context, Operation.WRITE, ResourceType.TOPIC, topic.name)
        ):
            errors |= yield from _same_error([topic], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
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


def _same_error(topics: list[AddPartitionsToTxnTopic], error: ErrorCode) -> Slices[dict[tuple[str, int], ErrorCode]]:
    errors = {}
    for topic in topics:
        for number, index in enumerate(topic.partitions, 1):
            errors[topic.name, index] = error
            if not number % PARTITIONS_AT_ONCE:
                yield
        yield
    return errors
