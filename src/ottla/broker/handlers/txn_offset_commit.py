"""TxnOffsetCommit (28), versions 0-5: offsets of a group as part of a transaction. KIP-98, KIP-447, KIP-890.

Before the first offsets of a transaction, the partition of `__consumer_offsets` is verified to be part of it. From
version 5 on it is added to the transaction. Each partition that does not exist has its own error; the others are
passed to the group's shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.request_batches import in_parts
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC
from ottla.common.slices import Slices, result_of
from ottla.coordination.internal_topic import partition_of
from ottla.coordination.transactions.verification import Verification
from ottla.coordinators.errors import from_append_error
from ottla.protocol.elements import Elements
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import TxnOffsetCommitPorts
    from ottla.metadata.image import MetadataImage

ADDS_SINCE = 5
ABORTABLE_SINCE = 4
LOADING_SINCE = 2
_Rows = Iterable[tuple[int, ErrorCode]]


def handle(
    broker: TxnOffsetCommitPorts, context: RequestContext, request: TxnOffsetCommitRequest
) -> Slices[TxnOffsetCommitResponse]:
    """Commit the offsets of the partitions that exist; a large request is handled in parts."""
    response: Elements[TxnOffsetCommitResponseTopic] = Elements(TxnOffsetCommitResponse, context.api_version)
    for topics in in_parts(request.topics, lambda topic: topic.partitions, _with_partitions):
        yield
        known = []
        for topic in topics:
            if not allowed(broker, context, Operation.READ, ResourceType.TOPIC, topic.name):
                refusals = ((row.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for row in topic.partitions)
                response.append(_topic(topic.name, refusals))
                continue
            fine, missing = _split(broker.metadata.image, topic)
            if missing:
                response.append(_topic(topic.name, ((i, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for i in missing)))
            if fine:
                known.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=fine))
        if known:
            answer = yield from _commit(broker, context, _part_of(request, known))
            for row in answer.topics:
                response.append(_topic(row.name, _errors_for(row, context.api_version)))
                yield
    return TxnOffsetCommitResponse(topics=response.as_list())


def _commit(
    broker: TxnOffsetCommitPorts, context: RequestContext, part: TxnOffsetCommitRequest
) -> Slices[TxnOffsetCommitResponse]:
    if not part.group_id:
        return _refuse(part, ErrorCode.INVALID_GROUP_ID)
    error = yield from _verify(broker, context, part)
    if error is ErrorCode.NETWORK_EXCEPTION:
        # As in Kafka: older producers do not expect it, and retry this one without looking for the coordinator.
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if error is not ErrorCode.NONE:
        return _refuse(part, error)
    committed = broker.groups.submit(part.group_id, part, api_version=context.api_version)
    response: TxnOffsetCommitResponse = yield from result_of(committed)
    return response


def _verify(broker: TxnOffsetCommitPorts, context: RequestContext, part: TxnOffsetCommitRequest) -> Slices[ErrorCode]:
    """Verify or add the group's partition; returns the error for which no offset may be committed, or NONE."""
    count = broker.groups.shards.topic.partition_count()
    adds = context.api_version >= ADDS_SINCE
    verification = Verification(
        part.transactional_id,
        adds=adds,
        abortable=context.api_version >= ABORTABLE_SINCE,
        is_enabled=adds or broker.settings.current.bool("transaction.partition.verification.enable"),
    )
    try:
        if not count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        partition = broker.partitions.get(OFFSETS_TOPIC, partition_of(part.group_id, count))
    except KafkaError as error:
        return from_append_error(error.code)
    verification.include(partition, part.producer_id, part.producer_epoch)
    yield from result_of(verification.attempt(broker.transactions, context.api_version))
    yield from verification.settle(broker.transactions, broker.settings.current, context.api_version)
    return verification.error(partition)


def _split(
    image: MetadataImage, topic: TxnOffsetCommitRequestTopic
) -> tuple[list[TxnOffsetCommitRequestPartition], list[int]]:
    """Return (the partitions that exist, the indexes of the others)."""
    found = image.topics_by_name.get(topic.name)
    known = found.partitions if found is not None else {}
    fine = [row for row in topic.partitions if row.partition_index in known]
    return fine, [row.partition_index for row in topic.partitions if row.partition_index not in known]


def _with_partitions(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition]
) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)


def _part_of(request: TxnOffsetCommitRequest, topics: list[TxnOffsetCommitRequestTopic]) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _refuse(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    topics = [
        _topic(topic.name, ((row.partition_index, error) for row in topic.partitions)) for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def _topic(name: str, rows: _Rows) -> TxnOffsetCommitResponseTopic:
    partitions = [TxnOffsetCommitResponsePartition(partition_index=index, error_code=error) for index, error in rows]
    return TxnOffsetCommitResponseTopic(name=name, partitions=partitions)


def _errors_for(topic: TxnOffsetCommitResponseTopic, api_version: int) -> Iterator[tuple[int, ErrorCode]]:
    """The outcomes. Producers before Kafka 2.3 do not expect COORDINATOR_LOAD_IN_PROGRESS."""
    for row in topic.partitions:
        error = ErrorCode(row.error_code)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_SINCE:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        yield row.partition_index, error
