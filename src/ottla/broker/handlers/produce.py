"""Produce (0), versions 3-13: append one record batch per partition.

KIP-98 (idempotence and transactions), KIP-467 (record errors from version 8), KIP-890 (verified transactions; from
version 12 on they need no AddPartitionsToTxn), KIP-516 (topic ids from version 13). acks=0 has no response: a failure
closes the connection, so that the client refreshes its metadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.transaction_verification import Verification
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records import NotOneBatchError, RecordError, read_header
from ottla.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.partition import Partition
    from ottla.broker.ports import ProducePorts

ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13
ABORTABLE_SINCE_VERSION = 11
ADDS_SINCE_VERSION = 12
NO_ACKS = 0
VALID_ACKS = (-1, NO_ACKS, 1)
# A request with more partitions is handled in slices of `SLICE_PARTITIONS`.
MOST_AT_ONCE = 200
SLICE_PARTITIONS = 20
# Fields of a successful response, created once; they must not be changed.
_NONE = int(ErrorCode.NONE)
_NO_ERRORS: list[BatchIndexAndErrorMessage] = []
_NO_LEADER = LeaderIdAndEpoch()
_Waiting: TypeAlias = list[tuple[Completion[None], PartitionProduceResponse]]
_WITHOUT_LOG_START = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_TXN_STATE,
}


class _Order:
    """What all partitions of a request have in common."""

    __slots__ = ("acks", "verification", "waiting")

    def __init__(self, acks: int, verification: Verification | None) -> None:
        self.acks = acks
        self.verification = verification
        self.waiting: _Waiting = []
        """Responses that are not committed yet."""


def handle(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Completion[ProduceResponse] | Slices[ProduceResponse | None] | None:
    """Append every batch; respond when the appended batches are committed."""
    verification = None
    if request.transactional_id is not None:
        verification = _verification_of(broker, context, request, request.transactional_id)
        attempt = verification.attempt(broker.transactions, context.api_version)
        if not attempt.done or verification.unsettled:
            _copy_batches(request)
            return _produce_when_verified(broker, context, request, verification, attempt)
    order = _Order(request.acks, verification)
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    if count > MOST_AT_ONCE or len(request.topic_data) > MOST_AT_ONCE:
        _copy_batches(request)
        return _produce_in_slices(broker, context, request, order)
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        responses = _append(broker, context, order, topic, topic.partition_data)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
    return _answer(context, request, topics, order.waiting)


def _copy_batches(request: ProduceRequest) -> None:
    """Copy the batches of a request that is handled later: its frame is only valid now."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _verification_of(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest, transactional_id: str
) -> Verification:
    """Collect the partitions of the request's transactional batches."""
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    adds = context.api_version >= ADDS_SINCE_VERSION
    verification = Verification(
        transactional_id,
        adds=adds,
        abortable=context.api_version >= ABORTABLE_SINCE_VERSION,
        is_enabled=adds or broker.config.bool("transaction.partition.verification.enable"),
    )
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if type(records) is not memoryview or len(records) < HEADER_SIZE:
                continue  # it is rejected when it would be appended
            header = read_header(records)
            if not header.is_transactional:
                continue
            try:
                if by_id:
                    partition = broker.partitions.get_by_id(topic.topic_id, data.index)
                else:
                    partition = broker.partitions.get(topic.name, data.index)
            except KafkaError:
                continue  # the same
            verification.include(partition, header.producer_id, header.producer_epoch, header.base_sequence)
    return verification


def _produce_when_verified(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    verification: Verification,
    attempt: Completion[None],
) -> Slices[ProduceResponse | None]:
    yield from result_of(attempt)
    yield from verification.settle(broker.transactions, broker.config, context.api_version)
    return (yield from _produce_in_slices(broker, context, request, _Order(request.acks, verification)))


def _produce_in_slices(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest, order: _Order
) -> Slices[ProduceResponse | None]:
    """Append to thousands of partitions, from copied batches."""
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        responses: list[PartitionProduceResponse] = []
        for start in range(0, len(topic.partition_data), SLICE_PARTITIONS):
            yield
            part = topic.partition_data[start : start + SLICE_PARTITIONS]
            responses += _append(broker, context, order, topic, part)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
        yield
    answer = _answer(context, request, topics, order.waiting)
    return (yield from result_of(answer)) if isinstance(answer, Completion) else answer


def _append(
    broker: ProducePorts,
    context: RequestContext,
    order: _Order,
    topic: TopicProduceData,
    rows: Iterable[PartitionProduceData],
) -> list[PartitionProduceResponse]:
    """Append to partitions of a topic; responses that are not committed yet are added to `order.waiting`."""
    acks, verification = order.acks, order.verification
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    allow_zstd = context.api_version >= ZSTD_SINCE_VERSION
    partitions = broker.partitions
    now_ms = broker.clock.wall_ms()
    responses: list[PartitionProduceResponse] = []
    for data in rows:
        partition: Partition | None = None
        try:
            if by_id:
                partition = partitions.get_by_id(topic.topic_id, data.index)
            else:
                partition = partitions.get(topic.name, data.index)
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
            records = data.records
            if type(records) is not memoryview:
                why = "There must be exactly one record batch per partition"
                raise NotOneBatchError(ErrorCode.INVALID_RECORD, why)
            is_verified = verification is not None and verification.check(partition)
            info = partition.append_produced(records, acks, now_ms, allow_zstd=allow_zstd, is_verified=is_verified)
            first, last, append_time_ms, start, _ = info
            response = PartitionProduceResponse(
                data.index, _NONE, first, append_time_ms, start, _NO_ERRORS, None, _NO_LEADER
            )
            if last >= partition.high_watermark:
                durable = partition.when_durable(last + 1)
                if durable is not None:
                    order.waiting.append((durable, response))
        except KafkaError as error:
            response = _failure(data.index, error, partition)
        responses.append(response)
    return responses


def _answer(
    context: RequestContext, request: ProduceRequest, topics: list[TopicProduceResponse], waiting: _Waiting
) -> ProduceResponse | Completion[ProduceResponse] | None:
    if request.acks == NO_ACKS:
        if any(response.error_code for topic in topics for response in topic.partition_responses):
            context.connection.close()
        return None
    answer = ProduceResponse(responses=topics)
    return _when_all_durable(answer, waiting) if waiting else answer


def _log_start(partition: Partition | None, error: KafkaError) -> int:
    """The log start offset; as in Kafka, returned with errors inside a batch, and -1 with any other error."""
    if partition is None or error.code in _WITHOUT_LOG_START or isinstance(error, NotOneBatchError):
        return -1
    return partition.log.log_start_offset


def _failure(index: int, error: KafkaError, partition: Partition | None) -> PartitionProduceResponse:
    errors = error.record_errors if isinstance(error, RecordError) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=_log_start(partition, error),
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in errors
        ],
        error_message=error.message,
    )


def _when_all_durable(
    answer: ProduceResponse, waiting: list[tuple[Completion[None], PartitionProduceResponse]]
) -> Completion[ProduceResponse]:
    result: Completion[ProduceResponse] = Completion()
    missing = len(waiting)

    def one_done(done: Completion[None], response: PartitionProduceResponse) -> None:
        nonlocal missing
        try:
            done.result()
        except KafkaError as error:
            response.error_code = error.code
            response.error_message = error.message
            response.base_offset = response.log_append_time_ms = response.log_start_offset = -1
        missing -= 1
        if not missing:
            result.complete(answer)

    for completion, response in waiting:
        completion.on_done(lambda done, response=response: one_done(done, response))  # type: ignore[misc]
    return result
