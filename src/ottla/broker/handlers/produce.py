"""Produce (0), versions 3-13: append one record batch per partition.

KIP-98 (idempotence and transactions), KIP-467 (record errors from version 8), KIP-890 (verified transactions; from
version 12 on they need no AddPartitionsToTxn), KIP-516 (topic ids from version 13), KIP-951 (the current leader with an
error, from version 10). acks=0 has no response: a failure
closes the connection, so that the client refreshes its metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, cast

from ottla.broker.authorization import allowed
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.coordination.transactions.verification import Batches, Verification, are_in_open_transaction
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.records import NotOneBatchError, RecordError, read_header
from ottla.records.batch import HEADER_SIZE, TRANSACTIONAL
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ProducePorts
    from ottla.partitions.partition import Partition

ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13
ABORTABLE_SINCE_VERSION = 11
ADDS_SINCE_VERSION = 12
NO_ACKS = 0
ALL = -1
VALID_ACKS = (-1, NO_ACKS, 1)
# A request with more partitions is handled in slices of `SLICE_PARTITIONS`.
MOST_AT_ONCE = 200
SLICE_PARTITIONS = 20
# A client may wait for weeks; the answer then comes no later than this.
LONGEST_TIMEOUT_MS = 300_000
# Fields of a successful response, created once; they must not be changed.
_NONE = int(ErrorCode.NONE)
_NO_ERRORS: list[BatchIndexAndErrorMessage] = []
_NO_LEADER = LeaderIdAndEpoch()
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_Hidden: TypeAlias = frozenset[str | Uuid]
_NOTHING: _Hidden = frozenset()
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
    """The state that all partitions of a request share."""

    __slots__ = ("acks", "has_moved", "hidden", "is_open", "verification", "waiting")

    def __init__(
        self, acks: int, verification: Verification | None, *, hidden: _Hidden = _NOTHING, is_open: bool = False
    ) -> None:
        self.acks = acks
        self.verification = verification
        self.hidden = hidden
        """The topics, by name or id, that the client may not write."""
        self.is_open = is_open
        """Whether all transactional batches belong to an open transaction, so that there is no verification."""
        self.waiting: _Waiting = []
        """Responses that are not committed yet."""
        self.has_moved = False
        """Whether this node does not lead one of the partitions."""


def handle(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Completion[ProduceResponse] | Slices[ProduceResponse | None] | None:
    """Append every batch; respond when the appended batches are committed."""
    hidden = _NOTHING
    if broker.security.authorizer is not None:
        if not _may_write_transaction(broker, context, request):
            return _refuse(context, request, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        hidden = _hidden_topics(broker, context, request)
    verification, is_open = None, False
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    is_long = count > MOST_AT_ONCE or len(request.topic_data) > MOST_AT_ONCE
    transactional_id = request.transactional_id
    if transactional_id is not None:
        batches = _transactional_batches(broker, context, request, hidden)
        adds = context.api_version >= ADDS_SINCE_VERSION
        # Only if nothing else happens between the answer and the appends.
        is_open = not is_long and are_in_open_transaction(batches, transactional_id, broker.transactions, adds=adds)
        if not is_open:
            verification = _verification_of(broker, context, transactional_id, batches)
            attempt = verification.attempt(broker.transactions, context.api_version)
            if not attempt.done or verification.unsettled:
                _copy_batches(request)
                order = _Order(request.acks, verification, hidden=hidden)
                return _produce_when_verified(broker, context, request, order, attempt)
    order = _Order(request.acks, verification, hidden=hidden, is_open=is_open)
    if is_long:
        _copy_batches(request)
        return _produce_in_slices(broker, context, request, order)
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        responses = _append(broker, context, order, topic, topic.partition_data)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses))
    return _answer(broker, context, request, topics, order)


def _may_write_transaction(broker: ProducePorts, context: RequestContext, request: ProduceRequest) -> bool:
    """Whether the client may write with its transactional id, if one of the batches is transactional."""
    name = request.transactional_id
    if not any(_is_transactional(data) for topic in request.topic_data for data in topic.partition_data):
        return True
    return name is not None and allowed(broker, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)


def _is_transactional(data: PartitionProduceData) -> bool:
    records = data.records
    if type(records) is not memoryview or len(records) < HEADER_SIZE:
        return False
    return bool(read_header(records).attributes & TRANSACTIONAL)


def _hidden_topics(broker: ProducePorts, context: RequestContext, request: ProduceRequest) -> _Hidden:
    """The topics that the client may not write; unknown ids have another error."""
    hidden: set[str | Uuid] = set()
    by_id = broker.metadata.image.topics_by_id if context.api_version >= TOPIC_IDS_SINCE_VERSION else None
    for topic in request.topic_data:
        name, key = topic.name, cast("str | Uuid", topic.name)
        if by_id is not None:
            found = by_id.get(topic.topic_id)
            if found is None:
                continue
            name, key = found.name, topic.topic_id
        if not allowed(broker, context, Operation.WRITE, ResourceType.TOPIC, name):
            hidden.add(key)
    return frozenset(hidden)


def _refuse(context: RequestContext, request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    """The response with the same error for each partition."""
    if request.acks == NO_ACKS:
        context.connection.close()
        return None
    answer = ProduceResponse()
    for topic in request.topic_data:
        rows = [_failure(data.index, error, None) for data in topic.partition_data]
        answer.responses.append(TopicProduceResponse(topic.name, topic.topic_id, rows))
    return answer


def _copy_batches(request: ProduceRequest) -> None:
    """Copy the batches of a request that is handled later: its frame is only valid now."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))


def _transactional_batches(
    broker: ProducePorts, context: RequestContext, request: ProduceRequest, hidden: _Hidden
) -> Batches:
    """The transactional batches of the request; without those that are rejected when they would be appended."""
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    found: Batches = []
    for topic in request.topic_data:
        if hidden and (topic.topic_id if by_id else topic.name) in hidden:
            continue
        for data in topic.partition_data:
            records = data.records
            if type(records) is not memoryview or len(records) < HEADER_SIZE:
                continue
            header = read_header(records)
            if not header.attributes & TRANSACTIONAL:
                continue
            try:
                if by_id:
                    partition = broker.partitions.get_by_id(topic.topic_id, data.index)
                else:
                    partition = broker.partitions.get(topic.name, data.index)
            except KafkaError:
                continue
            found.append((partition, header))
    return found


def _verification_of(
    broker: ProducePorts, context: RequestContext, transactional_id: str, batches: Batches
) -> Verification:
    adds = context.api_version >= ADDS_SINCE_VERSION
    verification = Verification(
        transactional_id,
        adds=adds,
        abortable=context.api_version >= ABORTABLE_SINCE_VERSION,
        is_enabled=adds or broker.settings.current.bool("transaction.partition.verification.enable"),
    )
    for partition, header in batches:
        verification.include(partition, header.producer_id, header.producer_epoch, header.base_sequence)
    return verification


def _produce_when_verified(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    order: _Order,
    attempt: Completion[None],
) -> Slices[ProduceResponse | None]:
    verification = order.verification
    assert verification is not None, "the attempt verifies"
    yield from result_of(attempt)
    yield from verification.settle(broker.transactions, broker.settings.current, context.api_version)
    return (yield from _produce_in_slices(broker, context, request, order))


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
    answer = _answer(broker, context, request, topics, order)
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
    if order.hidden and (topic.topic_id if by_id else topic.name) in order.hidden:
        refusal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return [_failure(data.index, refusal, None) for data in rows]
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
            is_verified = order.is_open or (verification is not None and verification.check(partition))
            info = partition.append_produced(records, acks, now_ms, allow_zstd=allow_zstd, is_verified=is_verified)
            first, last, append_time_ms, start, _ = info
            response = PartitionProduceResponse(
                data.index, _NONE, first, append_time_ms, start, _NO_ERRORS, None, _NO_LEADER
            )
            if last >= partition.high_watermark:
                durable = partition.when_durable(last + 1) if acks == ALL else partition.when_flushed(last + 1)
                if durable is not None:
                    order.waiting.append((durable, response))
        except KafkaError as error:
            response = _failure(data.index, error, partition)
            order.has_moved |= error.code in _MOVED
        responses.append(response)
    return responses


def _answer(
    broker: ProducePorts,
    context: RequestContext,
    request: ProduceRequest,
    topics: list[TopicProduceResponse],
    order: _Order,
) -> ProduceResponse | Completion[ProduceResponse] | None:
    if request.acks == NO_ACKS:
        if any(response.error_code for topic in topics for response in topic.partition_responses):
            context.connection.close()
        return None
    answer = ProduceResponse(responses=topics)

    def finished() -> ProduceResponse:
        return _with_leaders(broker, context, answer) if order.has_moved else answer

    return _when_all_durable(order, request.timeout_ms, finished) if order.waiting else finished()


def _with_leaders(broker: ProducePorts, context: RequestContext, answer: ProduceResponse) -> ProduceResponse:
    """Name the current leaders of partitions that this node does not lead, so that the client need not ask."""
    leaders: set[int] = set()
    for topic in answer.responses:
        for response in topic.partition_responses:
            if response.error_code in _MOVED:
                leader, epoch = broker.partitions.leader_of(topic.name or topic.topic_id, response.index)
                response.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    for leader in sorted(leaders):
        address = broker.endpoints.address(leader, context.listener)
        if address is not None:
            answer.node_endpoints.append(NodeEndpoint(leader, *address))
    return answer


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
    order: _Order, timeout_ms: int, finished: Callable[[], ProduceResponse]
) -> Completion[ProduceResponse]:
    """Complete when all partitions are committed or failed; after the timeout, the rest get REQUEST_TIMED_OUT."""
    result: Completion[ProduceResponse] = Completion()
    missing = {id(response): response for _, response in order.waiting}

    def fail(response: PartitionProduceResponse, error: KafkaError) -> None:
        order.has_moved |= error.code in _MOVED
        response.error_code = error.code
        response.error_message = error.message
        response.base_offset = response.log_append_time_ms = response.log_start_offset = -1

    def one_done(done: Completion[None], response: PartitionProduceResponse) -> None:
        if missing.pop(id(response), None) is None:
            return
        try:
            done.result()
        except KafkaError as error:
            fail(response, error)
        if not missing:
            timer.cancel()
            result.complete(finished())

    def expire() -> None:
        for response in missing.values():
            fail(response, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        missing.clear()
        result.complete(finished())

    seconds = min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS) / 1000
    timer = asyncio.get_running_loop().call_later(seconds, expire)
    for completion, response in order.waiting:
        completion.on_done(lambda done, response=response: one_done(done, response))  # type: ignore[misc]
    return result
